/* Templates by llama.cpp's names, for files that bring none and for --chat-template NAME. They give the texts
 * that llama.cpp's own formats give; like those they leave the beginning-of-sequence token to the tokenizer.
 *
 * Most formats are a frame around each message, so the table holds frames, and two macros make Jinja of them.
 * In a frame m is the message, m.role its role, c its content. */
#include "chat/chat.h"

#define BEFORE "{%- for m in messages %}{%- set c = m.content or '' %}"
#define AFTER  "{%- endfor %}"

/* One frame for all roles. PROMPT is what begins an answer. */
#define EACH(FRAME, PROMPT) BEFORE "{{ " FRAME " }}" AFTER ANSWER(PROMPT)

/* A frame for each of the three roles; others are left out. */
#define ROLES(SYSTEM, USER, ASSISTANT, PROMPT)                                                               \
    BEFORE "{%- if m.role == 'system' %}{{ " SYSTEM " }}{%- elif m.role == 'user' %}{{ " USER                \
           " }}{%- elif m.role == 'assistant' %}{{ " ASSISTANT " }}{%- endif %}" AFTER                       \
           ANSWER(PROMPT)

#define ANSWER(PROMPT) "{%- if add_generation_prompt %}{{ " PROMPT " }}{%- endif %}"

/* Formats in which a system message goes in front of the user's, inside one pair of marks. */
#define MISTRAL(OPEN, CLOSE, BEFORE_ANSWER, C)                                                               \
    "{%- set ns = namespace(open=false) %}" BEFORE "{%- if not ns.open %}{{ " OPEN                           \
    " }}{%- set ns.open = true %}{%- endif %}"                                                               \
    "{%- if m.role == 'system' %}{{ c ~ '\\n\\n' }}{%- elif m.role == 'user' %}{{ c ~ " CLOSE                \
    " }}{%- else %}{{ " BEFORE_ANSWER " ~ " C " ~ '</s>' }}{%- set ns.open = false %}{%- endif %}" AFTER

#define LLAMA2(SYSTEM, AGAIN, C)                                                                             \
    "{{ '[INST] ' }}{%- set ns = namespace(open=true) %}" BEFORE "{%- if not ns.open %}{{ " AGAIN            \
    " }}{%- set ns.open = true %}{%- endif %}"                                                               \
    "{%- if m.role == 'system' %}{{ " SYSTEM " }}{%- elif m.role == 'user' %}{{ " C                          \
    " ~ ' [/INST]' }}{%- else %}{{ " C " ~ '</s>' }}{%- set ns.open = false %}{%- endif %}" AFTER

/* Formats without a system message: it goes in front of the next user message. */
#define HELD_SYSTEM(C, USER, OTHER, PROMPT)                                                                  \
    "{%- set ns = namespace(s='') %}" BEFORE "{%- if m.role == 'system' %}{%- set ns.s = ns.s ~ " C "%}"     \
    "{%- else %}{%- if m.role == 'assistant' %}{{ " OTHER                                                    \
    " }}{%- else %}{%- if ns.s %}{%- set s = ns.s ~ '\\n\\n' %}{%- else %}{%- set s = '' %}{%- endif "       \
    "%}{{ " USER " }}{%- set ns.s = '' %}{%- endif %}{%- endif %}" AFTER                                     \
    ANSWER(PROMPT)

#define ROLE_MARKS(ROLE, END)                                                                                \
    BEFORE                                                                                                   \
    "{%- if m.role == 'user' %}{%- set r = 'HUMAN' %}{%- else %}{%- set r = m.role|upper %}{%- endif %}"     \
    "{{ '<role>' ~ r ~ '</role>' ~ c ~ '" END "' }}" AFTER ANSWER("'" ROLE "'")

#define GRANITE_4                                                                                            \
    EACH("'<|start_of_role|>' ~ ('assistant<|end_of_role|><|tool_call|>' if m.role == "                      \
         "'assistant_tool_call' else "                                                                       \
         "m.role ~ '<|end_of_role|>') ~ c ~ '<|end_of_text|>\\n'",                                           \
         "'<|start_of_role|>assistant<|end_of_role|>'")

static const struct {
    const char *name, *source;
} builtins[] = {
    {"chatml", EACH("'<|im_start|>' ~ m.role ~ '\\n' ~ c ~ '<|im_end|>\\n'", "'<|im_start|>assistant\\n'")},
    {"llama2", LLAMA2("c ~ '\\n'", "'[INST] '", "c")},
    {"llama2-sys", LLAMA2("'<<SYS>>\\n' ~ c ~ '\\n<</SYS>>\\n\\n'", "'[INST] '", "c")},
    {"llama2-sys-bos", LLAMA2("'<<SYS>>\\n' ~ c ~ '\\n<</SYS>>\\n\\n'", "'<s>[INST] '", "c")},
    {"llama2-sys-strip", LLAMA2("'<<SYS>>\\n' ~ c|trim ~ '\\n<</SYS>>\\n\\n'", "'[INST] '", "c|trim")},
    {"mistral-v1", MISTRAL("' [INST] '", "' [/INST]'", "' '", "c")},
    {"mistral-v3", MISTRAL("'[INST] '", "'[/INST]'", "' '", "c|trim")},
    {"mistral-v3-tekken", MISTRAL("'[INST]'", "'[/INST]'", "''", "c")},
    {"mistral-v7", ROLES("'[SYSTEM_PROMPT] ' ~ c ~ '[/SYSTEM_PROMPT]'", "'[INST] ' ~ c ~ '[/INST]'",
                         "' ' ~ c ~ '</s>'", "''")},
    {"mistral-v7-tekken",
     ROLES("'[SYSTEM_PROMPT]' ~ c ~ '[/SYSTEM_PROMPT]'", "'[INST]' ~ c ~ '[/INST]'", "c ~ '</s>'", "''")},
    {"phi3", EACH("'<|' ~ m.role ~ '|>\\n' ~ c ~ '<|end|>\\n'", "'<|assistant|>\\n'")},
    {"phi4",
     EACH("'<|im_start|>' ~ m.role ~ '<|im_sep|>' ~ c ~ '<|im_end|>'", "'<|im_start|>assistant<|im_sep|>'")},
    {"falcon3", EACH("'<|' ~ m.role ~ '|>\\n' ~ c ~ '\\n'", "'<|assistant|>\\n'")},
    {"zephyr", EACH("'<|' ~ m.role ~ '|>\\n' ~ c ~ '<|endoftext|>\\n'", "'<|assistant|>\\n'")},
    {"monarch", EACH("('' if loop.first else '<s>') ~ m.role ~ '\\n' ~ c ~ '</s>\\n'", "'<s>assistant\\n'")},
    {"gemma",
     HELD_SYSTEM("c|trim", "'<start_of_turn>' ~ m.role ~ '\\n' ~ s ~ c|trim ~ '<end_of_turn>\\n'",
                 "'<start_of_turn>model\\n' ~ c|trim ~ '<end_of_turn>\\n'", "'<start_of_turn>model\\n'")},
    {"orion", HELD_SYSTEM("c", "'Human: ' ~ s ~ c ~ '\\n\\nAssistant: </s>'", "c ~ '</s>'", "''")},
    {"openchat", ROLES("c ~ '<|end_of_turn|>'", "'GPT4 Correct User: ' ~ c ~ '<|end_of_turn|>'",
                       "'GPT4 Correct Assistant: ' ~ c ~ '<|end_of_turn|>'", "'GPT4 Correct Assistant:'")},
    {"vicuna",
     ROLES("c ~ '\\n\\n'", "'USER: ' ~ c ~ '\\n'", "'ASSISTANT: ' ~ c ~ '</s>\\n'", "'ASSISTANT:'")},
    {"vicuna-orca", ROLES("'SYSTEM: ' ~ c ~ '\\n'", "'USER: ' ~ c ~ '\\n'", "'ASSISTANT: ' ~ c ~ '</s>\\n'",
                          "'ASSISTANT:'")},
    {"deepseek", ROLES("c", "'### Instruction:\\n' ~ c ~ '\\n'", "'### Response:\\n' ~ c ~ '\\n<|EOT|>\\n'",
                       "'### Response:\\n'")},
    {"deepseek2", ROLES("c ~ '\\n\\n'", "'User: ' ~ c ~ '\\n\\n'",
                        "'Assistant: ' ~ c ~ '<｜end▁of▁sentence｜>'", "'Assistant:'")},
    {"deepseek3", ROLES("c ~ '\\n\\n'", "'<｜User｜>' ~ c", "'<｜Assistant｜>' ~ c ~ '<｜end▁of▁sentence｜>'",
                        "'<｜Assistant｜>'")},
    {"deepseek-ocr", EACH("c", "''")},
    {"command-r", ROLES("'<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' ~ c|trim ~ '<|END_OF_TURN_TOKEN|>'",
                        "'<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' ~ c|trim ~ '<|END_OF_TURN_TOKEN|>'",
                        "'<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' ~ c|trim ~ '<|END_OF_TURN_TOKEN|>'",
                        "'<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'")},
    {"llama3", EACH("'<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\\n\\n' ~ c|trim ~ '<|eot_id|>'",
                    "'<|start_header_id|>assistant<|end_header_id|>\\n\\n'")},
    {"chatglm3", "{{ '[gMASK]sop' }}" EACH("'<|' ~ m.role ~ '|>\\n ' ~ c", "'<|assistant|>'")},
    {"chatglm4", "{{ '[gMASK]<sop>' }}" EACH("'<|' ~ m.role ~ '|>\\n' ~ c", "'<|assistant|>\\n'")},
    {"glmedge", EACH("'<|' ~ m.role ~ '|>\\n' ~ c", "'<|assistant|>'")},
    {"minicpm", EACH("('<用户>' ~ c|trim ~ '<AI>') if m.role == 'user' else c|trim", "''")},
    {"exaone3", ROLES("'[|system|]' ~ c|trim ~ '[|endofturn|]\\n'", "'[|user|]' ~ c|trim ~ '\\n'",
                      "'[|assistant|]' ~ c|trim ~ '[|endofturn|]\\n'", "'[|assistant|]'")},
    {"exaone4", EACH("'[|' ~ m.role ~ '|]' ~ c|trim ~ ('\\n' if m.role == 'user' else '[|endofturn|]\\n')",
                     "'[|assistant|]'")},
    {"exaone-moe", EACH("'<|' ~ m.role ~ '|>\\n' ~ c|trim ~ '<|endofturn|>\\n'", "'<|assistant|>\\n'")},
    {"rwkv-world", ROLES("'System: ' ~ c|trim ~ '\\n\\n'",
                         "'User: ' ~ c|trim ~ '\\n\\n' ~ ('Assistant:' if loop.last else '')",
                         "'Assistant: ' ~ c|trim ~ '\\n\\n'", "''")},
    {"granite", EACH("'<|start_of_role|>' ~ m.role ~ '<|end_of_role|>' ~ ('<|tool_call|>' if m.role == "
                     "'assistant_tool_call' else '') ~ c ~ '<|end_of_text|>\\n'",
                     "'<|start_of_role|>assistant<|end_of_role|>'")},
    {"granite-4.0", GRANITE_4},
    {"granite-4.1", GRANITE_4},
    {"gigachat",
     "{{ '<s>' }}" ROLES("c ~ '<|message_sep|>' if loop.first else ''",
                         "'user<|role_sep|>' ~ c ~ '<|message_sep|>available functions<|role_sep|>[]"
                         "<|message_sep|>'",
                         "'assistant<|role_sep|>' ~ c ~ '<|message_sep|>'", "'assistant<|role_sep|>'")},
    {"megrez", EACH("'<|role_start|>' ~ m.role ~ '<|role_end|>' ~ c ~ '<|turn_end|>'",
                    "'<|role_start|>assistant<|role_end|>'")},
    {"yandex",
     ROLES("''", "' Пользователь: ' ~ c ~ '\\n\\n'", "' Ассистент: ' ~ c ~ '\\n\\n'", "' Ассистент:[SEP]'")},
    {"bailing", ROLE_MARKS("<role>ASSISTANT</role>", "")},
    {"bailing-think", ROLE_MARKS("<role>ASSISTANT</role><think>", "")},
    {"bailing2", "{%- if not messages or messages[0].role != 'system' %}"
                 "{{ '<role>SYSTEM</role>detailed thinking off<|role_end|>' }}{%- endif %}" //
     ROLE_MARKS("<role>ASSISTANT</role>", "<|role_end|>")},
    {"llama4", EACH("'<|header_start|>' ~ m.role ~ '<|header_end|>\\n\\n' ~ c|trim ~ '<|eot|>'",
                    "'<|header_start|>assistant<|header_end|>\\n\\n'")},
    {"smolvlm", "{{ '<|im_start|>' }}" ROLES("c ~ '\\n\\n'", "'User: ' ~ c ~ '<end_of_utterance>\\n'",
                                             "'Assistant: ' ~ c ~ '<end_of_utterance>\\n'", "'Assistant:'")},
    {"hunyuan-moe", ROLES("'<|startoftext|>' ~ c ~ '<|extra_4|>'", "'<|startoftext|>' ~ c ~ '<|extra_0|>'",
                          "c ~ '<|eos|>'", "''")},
    {"gpt-oss", EACH("'<|start|>' ~ m.role ~ '<|message|>' ~ c ~ ('<|return|>' if m.role == 'assistant' else "
                     "'<|end|>')",
                     "'<|start|>assistant'")},
    {"hunyuan-dense", ROLES("c ~ '<｜hy_place▁holder▁no▁3｜>' if loop.first else ''",
                            "'<｜hy_User｜>' ~ c ~ '<｜hy_Assistant｜>'",
                            "'<｜hy_Assistant｜>' ~ c ~ '<｜hy_place▁holder▁no▁2｜>'", "''")},
    {"hunyuan-vl", "{{ '<｜hy_begin▁of▁sentence｜>' }}" //
     ROLES("c ~ '<｜hy_place▁holder▁no▁3｜>' if loop.first else ''", "c ~ '<｜hy_User｜>'",
           "c ~ '<｜hy_Assistant｜>'", "''")},
    {"kimi-k2", ROLES("'<|im_system|>system<|im_middle|>' ~ c ~ '<|im_end|>'",
                      "'<|im_user|>user<|im_middle|>' ~ c ~ '<|im_end|>'",
                      "'<|im_assistant|>assistant<|im_middle|>' ~ c ~ '<|im_end|>'",
                      "'<|im_assistant|>assistant<|im_middle|>'")},
    {"seed_oss",
     EACH("'<seed:bos>' ~ m.role ~ '\\n' ~ (c|trim if m.role == 'assistant' else c) ~ '<seed:eos>'",
          "'<seed:bos>assistant\\n'")},
    {"grok-2",
     ROLES("'System: ' ~ c|trim ~ '<|separator|>\\n\\n'", "'Human: ' ~ c|trim ~ '<|separator|>\\n\\n'",
           "'Assistant: ' ~ c ~ '<|separator|>\\n\\n'", "'Assistant:'")},
    {"pangu-embedded",
     "{%- if messages and messages[0].role != 'system' %}{{ '[unused9]系统：[unused10]' }}"
     "{%- endif %}" ROLES("'[unused9]系统：' ~ c ~ '[unused10]'", "'[unused9]用户：' ~ c ~ '[unused10]'",
                          "'[unused9]助手：' ~ c ~ '[unused10]'", "'[unused9]助手：'")},
    {"solar-open", EACH("'<|begin|>' ~ m.role ~ '<|content|>' ~ c ~ '<|end|>'", "'<|begin|>assistant'")},
};

const char *chat_template_builtin(const char *name)
{
    for (size_t i = 0; i < sizeof builtins / sizeof builtins[0]; i++) {
        if (strcmp(name, builtins[i].name) == 0)
            return builtins[i].source;
    }
    return NULL;
}
