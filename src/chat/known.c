/* The cache of templates, and the looking at one. */
#include "chat/known.h"

#include "base/mem.h"
#include "chat/adjust.h"
#include "chat/format.h"
#include "chat/messages.h"

#include <pthread.h>
#include <stdlib.h>

#define MAX_KEPT 8

struct entry {
    struct chat_known known; /* first */
    struct str key, bos, eos;
    struct arena texts;
    int users;
    uint64_t used; /* when, counted */
    bool kept;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *kept[MAX_KEPT];
static uint64_t count;

static struct str copy(struct arena *a, struct str s)
{
    return (struct str){arena_strndup(a, s.p ? s.p : "", s.n), s.n};
}

static void entry_free(struct entry *e)
{
    chat_template_free(e->known.template);
    arena_release(&e->texts);
    free(e);
}

/* ---- looking at a template ---- */

struct view {          /* what a rendering is made with */
    const char *tools; /* JSON */
    bool thinking, ask;
};

static int render(struct entry *e, json_t *messages, const struct view *v, struct buf *out)
{
    struct err err = ERR_INIT;
    struct buf json = {0}, extra = {0};
    bool developer = chat_knows_developer(e->known.source);
    int status = chat_messages_fit(messages, &e->known.caps, developer, &err);
    chat_adjust_messages(e->known.source, messages);
    chat_json_text(messages, &json);
    buf_printf(&extra, "{\"enable_thinking\": %s, \"tools\": %s}", v->thinking ? "true" : "false", v->tools);
    if (status == 0)
        status =
            chat_template_render(e->known.template, buf_str(&json), buf_str(&extra), v->ask, 1, out, &err);
    buf_release(&json);
    buf_release(&extra);
    return status;
}

static void find_sample(struct entry *e)
{
    struct buf out = {0};
    json_t *messages = chat_messages_parse(str_of(chat_probe_messages), &(struct err)ERR_INIT);
    const struct view view = {chat_probe_tools, true, false};
    if (messages && render(e, messages, &view, &out) == 0)
        e->known.sample = copy(&e->texts, buf_str(&out));
    json_decref(messages);
    buf_release(&out);
}

#define THOUGHT "REASONING-PLACEHOLDER"
#define ANSWER  "CONTENT-PLACEHOLDER"

static int render_answer(struct entry *e, const char *thought, struct buf *out)
{
    json_t *messages =
        json_pack("[{s:s, s:s}, {s:s, s:s, s:s*, s:s*}]", "role", "user", "content", "Hi", "role",
                  "assistant", "content", ANSWER, "reasoning_content", thought, "thinking", thought);
    const struct view view = {"null", true, false};
    int status = messages ? render(e, messages, &view, out) : -1;
    json_decref(messages);
    return status;
}

static int render_question(struct entry *e, bool thinking, struct buf *out)
{
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "Hi");
    const struct view view = {"null", thinking, true};
    int status = render(e, messages, &view, out);
    json_decref(messages);
    return status;
}

/* The last place of `what` in the first n bytes of a text; -1 when there is none. */
static ptrdiff_t rfind(struct str text, struct str what)
{
    for (size_t i = text.n + 1; what.n && i-- > 0;) {
        if (text.n - i >= what.n && memcmp(text.p + i, what.p, what.n) == 0)
            return (ptrdiff_t)i;
    }
    return -1;
}

/* Where a mark such as <think>, with white space behind it, begins at the end of a text; its end if there is
 * none. */
static size_t mark_begin(struct str text)
{
    size_t end = text.n, begin;
    while (end && strchr(" \n", text.p[end - 1]))
        end--;
    if (!end || !strchr(">]", text.p[end - 1]))
        return text.n;
    for (begin = end - 1; begin && !strchr("<[\n", text.p[begin]);)
        begin--;
    return strchr("<[", text.p[begin]) ? begin : text.n;
}

/* Compares an answer with and without reasoning. */
static void find_reasoning(struct entry *e, const struct chat_format *format)
{
    struct buf with = {0}, without = {0};
    if (render_answer(e, THOUGHT, &with) == 0 && render_answer(e, NULL, &without) == 0) {
        ptrdiff_t thought = rfind(buf_str(&with), str_of(THOUGHT)),
                  answer = rfind(buf_str(&with), str_of(ANSWER));
        size_t same = 0;
        while (same < with.n && same < without.n && with.p[same] == without.p[same])
            same++;
        e->known.thinks |= thought >= 0;
        if (thought >= 0 && answer > thought && same <= (size_t)thought) {
            struct str before = {with.p, (size_t)thought};
            ptrdiff_t mark = format->think_start ? rfind(before, str_of(format->think_start)) : -1;
            size_t start = mark >= 0 && (size_t)mark < same ? (size_t)mark : same;
            if (start == (size_t)thought)
                start = mark_begin(before);
            size_t end = (size_t)thought + strlen(THOUGHT);
            e->known.think_start = copy(&e->texts, (struct str){with.p + start, (size_t)thought - start});
            e->known.think_end = copy(&e->texts, (struct str){with.p + end, (size_t)answer - end});
        }
    }
    buf_release(&with);
    buf_release(&without);
}

#define TAIL 16 /* bytes that ask for an answer, at least */

/* Compares what asks for an answer with thinking on and off. */
static void find_switch(struct entry *e, const struct chat_format *format)
{
    struct buf on = {0}, off = {0};
    if (format->think_start && render_question(e, true, &on) == 0 && render_question(e, false, &off) == 0) {
        struct str start = str_of(format->think_start);
        ptrdiff_t in_on = rfind(buf_str(&on), start);
        size_t tail = on.n < off.n ? on.n : off.n;
        tail = tail < TAIL ? tail : TAIL;
        e->known.thinks |= tail && memcmp(on.p + on.n - tail, off.p + off.n - tail, tail) != 0;
        if (on.n > off.n && memcmp(on.p, off.p, off.n) == 0 && in_on == (ptrdiff_t)off.n)
            e->known.think_start = copy(&e->texts, (struct str){on.p + in_on, on.n - (size_t)in_on});
    }
    buf_release(&on);
    buf_release(&off);
}

static void find_thinking(struct entry *e)
{
    struct chat_format format = chat_format_find(e->known.source, false, (struct str){0});
    e->known.think_start = copy(&e->texts, str_of(format.think_start ? format.think_start : ""));
    e->known.think_end = copy(&e->texts, str_of(format.think_end ? format.think_end : ""));
    find_switch(e, &format);
    find_reasoning(e, &format);
}

static struct entry *look(struct str source, struct str bos, struct str eos, struct err *err)
{
    struct buf adjusted = {0};
    chat_adjust_source(source, &adjusted);
    struct chat_template *template = chat_template_new(buf_str(&adjusted), bos, eos, err);
    struct entry *e = NULL;
    if (template) {
        e = xcalloc(1, sizeof *e);
        e->key = copy(&e->texts, source);
        e->bos = copy(&e->texts, bos);
        e->eos = copy(&e->texts, eos);
        e->known.template = template;
        e->known.source = copy(&e->texts, buf_str(&adjusted));
        e->known.caps = chat_template_caps(template);
        find_sample(e);
        find_thinking(e);
    }
    buf_release(&adjusted);
    return e;
}

/* ---- the cache ---- */

/* With the lock held. */
static struct entry *find(struct str source, struct str bos, struct str eos)
{
    for (size_t i = 0; i < MAX_KEPT; i++) {
        struct entry *e = kept[i];
        if (e && str_eq(e->key, source) && str_eq(e->bos, bos) && str_eq(e->eos, eos))
            return e;
    }
    return NULL;
}

/* With the lock held: in place of the one that was not used for longest. Returns one to be freed, or NULL. */
static struct entry *keep(struct entry *e)
{
    size_t at = 0;
    for (size_t i = 0; i < MAX_KEPT && kept[at]; i++) {
        if (!kept[i] || kept[i]->used < kept[at]->used)
            at = i;
    }
    struct entry *old = kept[at];
    kept[at] = e;
    e->kept = true;
    if (old)
        old->kept = false;
    return old && old->users == 0 ? old : NULL;
}

const struct chat_known *chat_known_get(struct str source, struct str bos, struct str eos, struct err *err)
{
    struct entry *old = NULL, *e;
    pthread_mutex_lock(&lock);
    e = find(source, bos, eos);
    if (!e) {
        pthread_mutex_unlock(&lock);
        e = look(source, bos, eos, err); /* two threads may do so at once: the later one's is kept as well */
        if (!e)
            return NULL;
        pthread_mutex_lock(&lock);
        old = keep(e);
    }
    e->users++;
    e->used = ++count;
    pthread_mutex_unlock(&lock);
    if (old)
        entry_free(old);
    return &e->known;
}

void chat_known_put(const struct chat_known *known)
{
    struct entry *e = (struct entry *)known;
    if (!known)
        return;
    pthread_mutex_lock(&lock);
    bool gone = --e->users == 0 && !e->kept;
    pthread_mutex_unlock(&lock);
    if (gone)
        entry_free(e);
}
