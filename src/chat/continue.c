/* How an answer begins. The general way: what the template itself writes to ask for an answer, up to where
 * reasoning starts, then reasoning between its marks, then content. Formats that put more around these have a
 * row. */
#include "chat/continue.h"

#include "chat/messages.h"

/* Row: texts of the template's source; what begins the turn (NULL: what the template asks with), what begins
 * and ends reasoning up to the content, and what stands in their place without reasoning (NULL: both of
 * them). */
static const struct {
    const char *has[3], *turn, *start, *end, *without;
} rows[] = {
    {{"[CALL_ID]"}, NULL, "", "", ""},
    {{"[SYSTEM_PROMPT]", "[TOOL_CALLS]", "[ARGS]"}, "", "[THINK]", "[/THINK]", NULL},
    {{"<|channel|>"},
     "<|start|>assistant",
     "<|channel|>analysis<|message|>",
     "<|end|><|start|>assistant<|channel|>final<|message|>",
     NULL},
    {{"<atem:function_calls>", "<|eom|>"},
     "<|start|>assistant",
     " to=self<|message|>",
     "<|eom|><|start|>assistant to=user<|message|>",
     NULL},
    {{">>>all", ">>>${recipient}"}, "<|start_header_id|>assistant<|end_header_id|>\n\n>>>all\n", "", "", ""},
    {{"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
     "<|im_assistant|>assistant<|im_middle|>",
     "<think>",
     "</think>",
     NULL},
    {{"<|close|>", "<|end_of_msg|>"},
     "<|open|>message role=\"assistant\"<|sep|>",
     "<|open|>think<|sep|>",
     "<|close|>think<|sep|><|open|>response<|sep|>",
     NULL},
    {{"<role>ASSISTANT</role>", "<arg_key>"}, "<role>ASSISTANT</role>\n", "<think>", "</think>", NULL},
    {{"<|START_TEXT|>", "<|START_ACTION|>"},
     "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
     "<|START_THINKING|>",
     "<|END_THINKING|><|START_TEXT|>",
     NULL},
    {{"<|tool_list_start|>", "<|tool_list_end|>"}, "<|im_start|>assistant\n", "<think>", "</think>", NULL},
    {{"List of tools: ["}, "<|im_start|>assistant\n", "<think>", "</think>", NULL},
    {{"<|role_sep|>", "<|message_sep|>"}, "assistant<|role_sep|>\n", "", "", ""},
    {{"]<]minimax[>[", "<invoke name="}, NULL, "<mm:think>", "</mm:think>", NULL},
    {{"dsml_token", "function_calls"}, "<｜Assistant｜>", "<think>", "</think>", NULL},
    {{"dsml_token", "DSML"}, "<｜Assistant｜>", "<think>", "</think>", "</think>"},
    {{"'<|tool_call>call:'"}, NULL, "<|channel>thought\n", "<channel|>", NULL},
    {{"<|begin|>", "<|think|>", "<|content|>"},
     "<|begin|>assistant",
     "<|think|>",
     "<|end|><|begin|>assistant<|content|>",
     "<|content|>"},
    {{"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"},
     NULL,
     "Here are my reasoning steps:\n",
     "\n[BEGIN FINAL RESPONSE]\n",
     NULL},
    {{"Tool usage guidelines:", "<param name=\""},
     "<|im_start|>assistant\n",
     "<think>\n",
     "\n</think>\n\n",
     NULL},
    {{"<think>", "<function=", "<parameter="},
     "<|im_start|>assistant\n",
     "<think>\n",
     "\n</think>\n\n",
     NULL},
};

static bool contains(struct str text, const char *what)
{
    return text.n && memmem(text.p, text.n, what, strlen(what));
}

static bool fits(size_t row, struct str source)
{
    for (size_t k = 0; k < 3 && rows[row].has[k]; k++) {
        if (!contains(source, rows[row].has[k]))
            return false;
    }
    return true;
}

void chat_continue(const struct chat_opening *o, const json_t *message, struct buf *prompt)
{
    struct str turn = o->generation_prompt, start = o->think_start, end = o->think_end;
    const char *without = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!fits(i, o->source))
            continue;
        if (rows[i].turn)
            turn = str_of(rows[i].turn);
        start = str_of(rows[i].start);
        end = str_of(rows[i].end);
        without = rows[i].without;
        break;
    }
    json_t *reasoning = json_object_get(message, "reasoning_content");
    size_t n_reasoning = json_string_length(reasoning);
    struct buf content = {0};
    chat_message_text(message, &content);
    size_t mark = start.n;
    while (mark && strchr(" \n", start.p[mark - 1]))
        mark--;
    const char *opened = mark && turn.n ? memmem(turn.p, turn.n, start.p, mark) : NULL;
    if (opened)
        turn.n = (size_t)(opened - turn.p);
    buf_add(prompt, turn.p, turn.n);
    if (without && n_reasoning == 0) {
        buf_puts(prompt, without);
    } else if (start.n) {
        buf_add(prompt, start.p, start.n);
        buf_add(prompt, json_string_value(reasoning), n_reasoning);
        if (content.n || n_reasoning == 0)
            buf_add(prompt, end.p, end.n);
    }
    buf_add(prompt, content.p, content.n);
    buf_release(&content);
}
