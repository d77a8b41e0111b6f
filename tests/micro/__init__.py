"""What each arrow of the straight line costs."""
