// An extension that opencode-shim gives to Pi with `-e`. Pi itself asks nothing, so this asks before every tool call, and
// lets the model ask the person. Both use Pi's own dialogs, which `asks.py` recognises by their titles. The server
// answers at once where neither a permission rule nor the mode wants a person to be asked.
const UNCHECKED = new Set(["question"]);
const DENIED = "The user doesn't want to proceed with this tool use.";

// The client of a model's API is loaded at the first request, which takes as long as a whole later prompt. So a request is built
// ahead, and thrown away before anything is sent. No login is looked up for it.
async function prepare(model) {
  if (model === undefined) return;
  const { streamSimple } = await import("@earendil-works/pi-ai/compat");
  const drop = () => {
    throw new Error("built ahead");
  };
  const context = { messages: [{ role: "user", content: "hello", timestamp: 0 }] };
  await streamSimple(model, context, { apiKey: "none", fetch: drop, onPayload: drop, maxRetries: 0 }).result();
}

export default function (pi) {
  // Which prompts of its file it goes on after, and which one was answered last, for an undo of a later one: see codec.py.
  const tell = (ctx, count) => {
    const prompts = ctx.sessionManager.getBranch().filter((e) => e.type === "message" && e.message.role === "user");
    if (prompts.length) ctx.ui.setStatus("opencode-shim.prompt", prompts.slice(-count).map((e) => e.id).join(" "));
  };

  pi.on("session_start", (_event, ctx) => {
    tell(ctx, Infinity);
    void prepare(ctx.model).catch(() => undefined); // older versions have no such module, and then nothing is prepared
  });

  pi.on("tool_call", async (event, ctx) => {
    if (UNCHECKED.has(event.toolName)) return undefined;
    const title = "Allow " + event.toolName + "? " + JSON.stringify(event.input);
    const choice = await ctx.ui.select(title, ["Allow once", "Allow always", "Deny"]);
    if (choice === "Allow once" || choice === "Allow always") return undefined;
    return { block: true, reason: (choice ?? "").replace(/^Deny(: )?/, "") || DENIED };
  });

  pi.on("agent_end", async (_event, ctx) => tell(ctx, 1));

  pi.registerTool({
    name: "question",
    label: "Question",
    description: "Ask the user one or more questions when you cannot go on without their decision.",
    parameters: {
      type: "object",
      properties: {
        questions: {
          type: "array",
          items: {
            type: "object",
            properties: {
              question: { type: "string", description: "The complete question" },
              header: { type: "string", description: "Very short label, 30 characters at most" },
              options: {
                type: "array",
                items: {
                  type: "object",
                  properties: { label: { type: "string" }, description: { type: "string" } },
                  required: ["label"],
                },
              },
              multiple: { type: "boolean", description: "Several options may be chosen" },
            },
            required: ["question", "options"],
          },
        },
      },
      required: ["questions"],
    },
    async execute(_id, params, _signal, _onUpdate, ctx) {
      const value = await ctx.ui.input("Questions: " + JSON.stringify(params.questions));
      if (value === undefined) throw new Error("The user dismissed this question: go on without an answer, or stop.");
      const answers = JSON.parse(value);
      if (!Array.isArray(answers)) throw new Error(answers.rejected);
      const lines = params.questions.map((q, i) => '"' + q.question + '" = "' + (answers[i] ?? []).join(", ") + '"');
      const text = "The user has answered: " + lines.join(", ") + ". Continue with these answers in mind.";
      return { content: [{ type: "text", text }], details: { answers } };
    },
  });
}
