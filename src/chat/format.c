/* Finding the format of a template: rows in order, the first whose texts the source has. Marks of reasoning
 * are a list of their own, since most formats are used by models with and without it. */
#include "chat/format_row.h"

const char chat_probe_messages[] =
    "[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{"
    "\"id\":"
    "\"call00001\",\"type\":\"function\",\"function\":{\"name\":\"probe_name\",\"arguments\":{\"probe_key\":"
    "\"probe_value\"}}}]}]";
const char chat_probe_tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"probe_name\","
                                "\"description\":\"A probe.\",\"parameters\":{"
                                "\"type\":\"object\",\"properties\":{\"probe_key\":{\"type\":\"string\"}},"
                                "\"required\":[\"probe_key\"]}}}]";

static const struct {
    const char *in, *start, *end;
} reasoning_marks[] = {
    {"</think>", "<think>", "</think>"},
    {"<think>", "<think>", "</think>"},
    {"[/THINK]", "[THINK]", "[/THINK]"},
    {"<|END_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>"},
    {"</mm:think>", "<mm:think>", "</mm:think>"},
    {"</seed:think>", "<seed:think>", "</seed:think>"},
    {"<|inner_suffix|>", "<|inner_prefix|>", "<|inner_suffix|>"},
    {"<|think|>", "<|think|>", "<|end|>"},
};

static const char *find(struct str in, const char *text)
{
    return in.n ? memmem(in.p, in.n, text, strlen(text)) : NULL;
}

/* All texts of a list separated by \x1F. */
static bool has_all(struct str in, const char *list)
{
    while (*list) {
        size_t n = strcspn(list, "\x1F");
        if (!in.n || !memmem(in.p, in.n, list, n))
            return false;
        list += n + (list[n] != '\0');
    }
    return true;
}

static bool row_fits(const struct chat_format_row *row, struct str source)
{
    for (size_t i = 0; i < sizeof row->out / sizeof *row->out && row->out[i]; i++) {
        if (find(source, row->out[i]))
            return false;
    }
    for (size_t i = 0; i < ROW_TEXTS && row->in[i]; i++) {
        if (has_all(source, row->in[i]))
            return true;
    }
    return false;
}

const struct chat_format_row *chat_format_row(const char *name)
{
    for (size_t i = 0; i < chat_format_n_rows; i++) {
        if (strcmp(chat_format_rows[i].name, name) == 0)
            return &chat_format_rows[i];
    }
    return NULL;
}

/* Whether the probe's call is there in the way of a row: after the row's mark comes the name. */
static bool sample_fits(const struct chat_format_row *row, struct str sample)
{
    const char *mark = row->call_start ? find(sample, row->call_start) : NULL;
    if (!mark)
        return false;
    struct str rest = {mark, (size_t)(sample.p + sample.n - mark)};
    const char *name = find(rest, "probe_name");
    return name && name - mark < 200;
}

static const struct chat_format_row *find_row(struct str source, bool has_tools, struct str sample)
{
    for (size_t i = 0; i < chat_format_n_rows; i++) {
        if (row_fits(&chat_format_rows[i], source))
            return &chat_format_rows[i];
    }
    for (size_t i = 0; i < chat_format_n_rows; i++) {
        if (sample_fits(&chat_format_rows[i], sample))
            return &chat_format_rows[i];
    }
    return chat_format_row(has_tools ? "generic" : "content-only");
}

/* A template that writes a line break behind the mark doesn't count it as content. */
static bool break_follows(struct str source, const char *mark)
{
    size_t n = strlen(mark);
    for (const char *at; (at = find(source, mark)) != NULL;) {
        size_t used = (size_t)(at - source.p) + n;
        source = (struct str){source.p + used, source.n - used};
        if (source.n >= 2 && source.p[0] == '\\' && source.p[1] == 'n')
            return true;
        if (source.n >= 1 && source.p[0] == '\n')
            return true;
    }
    return false;
}

struct chat_format chat_format_find(struct str source, bool has_tools, struct str sample)
{
    const struct chat_format_row *row = find_row(source, has_tools, sample);
    struct chat_format f = {
        .row = row, .name = row->name, .think_start = row->think_start, .think_end = row->think_end};
    for (size_t i = 0; !f.think_end && i < sizeof reasoning_marks / sizeof *reasoning_marks; i++) {
        if (find(source, reasoning_marks[i].in)) {
            f.think_start = reasoning_marks[i].start;
            f.think_end = reasoning_marks[i].end;
        }
    }
    f.think_trim = f.think_end && ((row->flags & F_THINK_TRIM) || break_follows(source, f.think_end));
    return f;
}

bool chat_ends_with(struct str text, const char *mark)
{
    size_t n = mark ? strlen(mark) : 0;
    while (text.n > 0 && strchr(" \t\r\n", text.p[text.n - 1]))
        text.n--;
    return n > 0 && text.n >= n && memcmp(text.p + text.n - n, mark, n) == 0;
}

bool chat_format_thinking_open(const struct chat_format *f, struct str prompt)
{
    return chat_ends_with(prompt, f->think_start);
}

bool chat_format_has_calls(const struct chat_format *f)
{
    return f->row->kind != CALLS_NONE;
}

const char *chat_format_instruction(const struct chat_format *f)
{
    if (!(f->row->flags & F_ENVELOPE))
        return NULL;
    return "To call a tool, answer with nothing but JSON of the form "
           "{\"tool_call\": {\"name\": …, \"arguments\": {…}}}, or {\"tool_calls\": […]} for several. "
           "Otherwise answer in plain text. The tools:\n";
}
