/* Reading what a person types. On a terminal libedit does it; Ctrl-C is a key for it while it does, so no
 * signal has to be caught in the middle of a library. */
#include "cli/line.h"

#include "base/mem.h"

#include <histedit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct line_reader {
    EditLine *edit; /* NULL: plain lines */
    History *history;
    bool terminal, more, interrupted;
    char *line; /* of getline */
    size_t size;
};

static const char *prompt_text(const struct line_reader *r)
{
    return r->more ? ". " : "> ";
}

static char *edit_prompt(EditLine *e)
{
    struct line_reader *r;
    el_get(e, EL_CLIENTDATA, &r);
    return (char *)prompt_text(r);
}

static unsigned char edit_interrupt(EditLine *e, int key)
{
    (void)key;
    struct line_reader *r;
    el_get(e, EL_CLIENTDATA, &r);
    r->interrupted = true;
    return CC_EOF;
}

static void edit_open(struct line_reader *r, FILE *screen)
{
    HistEvent event;
    r->edit = el_init("grappa", stdin, screen, stderr);
    r->history = history_init();
    if (!r->edit || !r->history)
        return;
    history(r->history, &event, H_SETSIZE, 1000);
    history(r->history, &event, H_SETUNIQUE, 1);
    el_set(r->edit, EL_CLIENTDATA, r);
    el_set(r->edit, EL_PROMPT, edit_prompt);
    el_set(r->edit, EL_EDITOR, "emacs");
    el_set(r->edit, EL_HIST, history, r->history);
    el_set(r->edit, EL_ADDFN, "grappa-interrupt", "leave", edit_interrupt);
    el_set(r->edit, EL_BIND, "^C", "grappa-interrupt", NULL);
    el_set(r->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(r->edit, EL_SETTY, "-d", "-isig", NULL);
}

struct line_reader *line_reader_new(bool simple)
{
    struct line_reader *r = xcalloc(1, sizeof *r);
    FILE *screen = isatty(STDERR_FILENO) ? stderr : isatty(STDOUT_FILENO) ? stdout : NULL;
    r->terminal = isatty(STDIN_FILENO) && screen;
    if (r->terminal && !simple)
        edit_open(r, screen);
    return r;
}

void line_reader_free(struct line_reader *r)
{
    if (!r)
        return;
    if (r->edit)
        el_end(r->edit);
    if (r->history)
        history_end(r->history);
    free(r->line);
    free(r);
}

/* One line with its newline, NULL at the end. */
static const char *next_line(struct line_reader *r, size_t *n)
{
    if (r->edit && r->history) {
        int count;
        /* Raw before the prompt shows: a Ctrl-C that answers it is a key, never a signal. */
        el_set(r->edit, EL_PREP_TERM, 1);
        const char *line = el_gets(r->edit, &count);
        *n = line && count > 0 ? (size_t)count : 0;
        return *n ? line : NULL;
    }
    if (r->terminal)
        fputs(prompt_text(r), stderr);
    ssize_t count = getline(&r->line, &r->size, stdin);
    *n = count > 0 ? (size_t)count : 0;
    return *n ? r->line : NULL;
}

enum line_result line_read(struct line_reader *r, struct buf *out)
{
    bool any = false;
    r->interrupted = r->more = false;
    buf_clear(out);
    do {
        size_t n;
        const char *line = next_line(r, &n);
        if (r->interrupted) {
            fputs("\n", stderr);
            return LINE_INTERRUPTED;
        }
        if (!line)
            return any ? LINE_OK : LINE_END;
        any = true;
        n -= line[n - 1] == '\n';
        r->more = n && line[n - 1] == '\\';
        n -= r->more;
        buf_add(out, line, n);
        if (r->more)
            buf_putc(out, '\n');
    } while (r->more);
    if (r->history && out->n) {
        HistEvent event;
        history(r->history, &event, H_ENTER, out->p);
    }
    return LINE_OK;
}
