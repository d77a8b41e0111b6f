"""The mock agent: its native protocol and the codec for it.

The mock needs no network, no key and no installation; it plays scenes (`shim.processes.mock.agent`), so that every path
of the server and of its clients can be seen and tested. It speaks one JSON object per line. `?` marks optional keys.

To the agent:

    hello             protocol                                    answered with hello
    prompt            run, text, attachments? [{mime, name?, path?, bytes?}], model?, variant?, mode?, system?
    interrupt         run                                         a run that is over is left alone
    permission_reply  id, decision (once | always | reject), message?
    question_reply    id, answers (str[][]), or null to reject, message?

From the agent (`child?` on all that belongs to a subagent: the id of its `task` call):

    hello             session, version, models [{id, name, ...}], commands [{name, description}]
    step_start        step, model?                                one step = one answer of the model = one message
    text, thinking    step, part, delta                           `part` is a name; its place is that of its first piece
    step_finish       step, finish ("stop" | "tool-calls" | "aborted" | "error"), usage?, cost?
    tool_start        tool, step, name                            the model begins a call
    tool_run          tool, input, title?                         the call is complete, the tool runs
    tool_output       tool, delta
    tool_result       tool, ok, output, files? [{path, action, diff?}], images? [{path, mime?}], meta?
    permission        id, tool, title, patterns?, always?, description?, diff?
    question          id, tool, questions [{question, header?, options? [{label, description?}], multiple?, custom?}]
    withdrawn         id                                          the agent wants no answer any more
    todo              todos [{content, status, priority}]
    mode              mode
    retry             attempt, message, delay_ms
    compaction        phase (started | completed | failed), auto?, summary?
    subagent_start    tool, title, agent, prompt
    subagent_end      tool, status (completed | aborted | failed)
    background_start  tool                                        from now on this call holds the turn open
    background_end    tool
    wake              run                                         the agent goes on, or begins, without being asked
    error             message, code?, status?, retryable?, hint?
    done              run, status (completed | failed | aborted), usage?, cost?

`run` is the key of the prompt, or a name that the agent chose for what it began by itself. Lines for a step or tool that
is closed are dropped and counted (`ignored:KIND`); lines for one that never was are `agent.unparsed`.
"""
