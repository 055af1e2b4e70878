/* BPE with a table of merges: byte-level (GPT-2's alphabet) and raw (Gemma 4). Merges are resolved to ids
 * when the vocabulary loads, so that tokenizing compares numbers. */
#include "base/par.h"
#include "vocab/inside.h"

#include <stdlib.h>

static uint64_t pair_hash(uint64_t pair)
{
    unsigned __int128 m = (unsigned __int128)(pair ^ 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static struct merge_slot *merge_at(const struct bpe *b, uint64_t pair)
{
    size_t i = pair_hash(pair) & b->mask;
    while (b->merges[i].id_1 && b->merges[i].pair != pair)
        i = (i + 1) & b->mask;
    return &b->merges[i];
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static bool bpe_fits(const void *rule, const struct symbol *left, const struct symbol *right, uint32_t *order,
                     int32_t *id)
{
    const struct bpe *b = rule;
    if (left->id < 0 || right->id < 0)
        return false;
    const struct merge_slot *s = merge_at(b, pair_of(left->id, right->id));
    if (!s->id_1)
        return false;
    *order = s->rank;
    *id = s->id_1 - 1;
    return true;
}

/* Id of a text, a new one if neither a token nor a merge has it. -1 when memory is out. */
static int32_t intern(struct token_map *m, struct str text)
{
    int32_t id = token_map_find(m, text);
    if (id >= 0)
        return id;
    return token_map_add(m, text) == -1 ? (int32_t)m->n - 1 : -1;
}

/* "left right"; the first byte may itself be a space. */
static bool merge_parts(struct str merge, struct str *left, struct str *right)
{
    const char *space = merge.n > 1 ? memchr(merge.p + 1, ' ', merge.n - 1) : NULL;
    if (!space)
        return false;
    *left = (struct str){merge.p, (size_t)(space - merge.p)};
    *right = (struct str){space + 1, merge.n - left->n - 1};
    return right->n > 0;
}

/* What a merge joins and what comes out, by id; -1: no token has the text. */
struct merge_ids {
    int32_t left, right, both;
};

struct merge_job {
    const struct token_map *map;
    const struct gguf_kv *kv;
    struct merge_ids *ids;
};

static bool is_joined(const struct token_map *m, int32_t id, struct str left, struct str right)
{
    if (id < 0 || (size_t)id >= m->n || m->texts[id].n != left.n + right.n)
        return false;
    const char *p = m->texts[id].p;
    return !memcmp(p, left.p, left.n) && !memcmp(p + left.n, right.p, right.n);
}

/* The id of the joined text. Files list the merges in the order of the tokens they make, so the last result
 * and the one behind it are tried before the text is put together. */
static int32_t find_joined(const struct token_map *m, struct str left, struct str right, int32_t last,
                           struct buf *joined)
{
    if (is_joined(m, last, left, right))
        return last;
    if (is_joined(m, last + 1, left, right))
        return last + 1;
    buf_clear(joined);
    buf_add(joined, left.p, left.n);
    buf_add(joined, right.p, right.n);
    return token_map_find(m, buf_str(joined));
}

static void look_up_merges(void *ctx, size_t begin, size_t end)
{
    enum { BLOCK = 32 };
    const struct merge_job *job = ctx;
    struct buf joined = {0};
    struct str parts[2 * BLOCK];
    int32_t ids[2 * BLOCK], last = -1;
    for (size_t n; begin < end; begin += n) {
        n = end - begin < BLOCK ? end - begin : BLOCK;
        for (size_t i = 0; i < n; i++) {
            if (!merge_parts(gguf_str_at(job->kv, begin + i), &parts[2 * i], &parts[2 * i + 1]))
                parts[2 * i] = parts[2 * i + 1] = str_of("");
        }
        token_map_find_many(job->map, parts, 2 * n, ids);
        for (size_t i = 0; i < n; i++) {
            const struct str *part = &parts[2 * i];
            last = part[0].n ? find_joined(job->map, part[0], part[1], last, &joined) : -1;
            job->ids[begin + i] = (struct merge_ids){ids[2 * i], ids[2 * i + 1], last};
        }
    }
    buf_release(&joined);
}

/* Gives ids to the texts of a merge that are no tokens. */
static int intern_merge(struct vocab *v, struct str merge, struct merge_ids *ids, struct err *err)
{
    struct str left, right;
    if (!merge_parts(merge, &left, &right))
        return 0;
    char *both = arena_alloc(&v->arena, left.n + right.n);
    memcpy(both, left.p, left.n);
    memcpy(both + left.n, right.p, right.n);
    ids->left = intern(&v->map, left);
    ids->right = intern(&v->map, right);
    ids->both = intern(&v->map, (struct str){both, left.n + right.n});
    return ids->left < 0 || ids->right < 0 || ids->both < 0 ? no_memory(err) : 0;
}

/* The first of equal merges counts. */
static int fill_merges(struct vocab *v, const struct merge_job *job, struct err *err)
{
    enum { AHEAD = 16 };
    const struct bpe *b = &v->bpe;
    for (size_t i = 0; i < job->kv->n; i++) {
        struct merge_ids *ids = &job->ids[i];
        if (i + AHEAD < job->kv->n)
            __builtin_prefetch(&b->merges[pair_hash(pair_of(ids[AHEAD].left, ids[AHEAD].right)) & b->mask]);
        if ((ids->left < 0 || ids->right < 0 || ids->both < 0) &&
            intern_merge(v, gguf_str_at(job->kv, i), ids, err) != 0)
            return -1;
        if (ids->both < 0)
            continue;
        struct merge_slot *slot = merge_at(b, pair_of(ids->left, ids->right));
        if (!slot->id_1)
            *slot = (struct merge_slot){pair_of(ids->left, ids->right), (uint32_t)i, ids->both + 1};
    }
    return 0;
}

static int load_merges(struct vocab *v, const struct gguf *g, struct err *err)
{
    const char *key = "tokenizer.ggml.merges";
    const struct gguf_kv *kv = gguf_find(g, key);
    size_t n = kv ? kv->n : 0, size = 64;
    if (kv && (!kv->is_array || kv->type != GGUF_STRING))
        return err_set(err, ERR_FORMAT, "%s: not an array of strings", key);
    if (n > UINT32_MAX / 2)
        return err_set(err, ERR_FORMAT, "%s: too many", key);
    while (size / 2 < n)
        size *= 2;
    v->bpe.merges = calloc(size, sizeof *v->bpe.merges);
    v->bpe.mask = size - 1;
    struct merge_job job = {&v->map, kv, calloc(n + 1, sizeof *job.ids)};
    int rc = v->bpe.merges && job.ids ? 0 : no_memory(err);
    if (rc == 0 && n) {
        par_for(n, 16384, 0, look_up_merges, &job);
        rc = fill_merges(v, &job, err);
    }
    free(job.ids);
    return rc;
}

/* The symbol that each byte begins as, and the token that stands for it alone. */
static void load_bytes(struct vocab *v)
{
    struct bpe *b = &v->bpe;
    struct buf text = {0};
    for (unsigned i = 0; i < 256; i++) {
        buf_clear(&text);
        buf_put_utf8(&text, b->raw ? i : byte_to_char((unsigned char)i));
        b->byte_id[i] = b->raw && i >= 0x80 ? -1 : token_map_find(&v->map, buf_str(&text));
        buf_clear(&text);
        if (b->raw)
            buf_printf(&text, "<0x%02X>", i);
        else
            buf_putc(&text, (char)i);
        b->byte_token[i] = token_of(v, buf_str(&text));
    }
    buf_release(&text);
}

int bpe_load(struct vocab *v, const struct gguf *g, struct err *err)
{
    if (load_merges(v, g, err) != 0)
        return -1;
    load_bytes(v);
    return 0;
}

void bpe_release(struct bpe *b)
{
    pretok_free(b->pre);
    free(b->merges);
}

/* A symbol that only merges know, or an unknown character: its bytes, those that have a token. The byte-level
 * kinds look for the bytes of the alphabet's characters. */
static bool put_bytes(const struct bpe *b, struct str text, struct token_list *out)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i], spelled[2] = {c};
        int n = 1;
        uint32_t as = b->raw ? c : byte_to_char(c);
        if (!b->raw && as >= 0x80) {
            spelled[0] = (unsigned char)(0xC0 | as >> 6);
            spelled[n++] = (unsigned char)(0x80 | (as & 0x3F));
        }
        for (int k = 0; k < n; k++) {
            token_id t = b->byte_token[spelled[k]];
            if (t >= 0 && !token_push(out, t))
                return false;
        }
    }
    return true;
}

/* The token whose text is the word as a whole. */
static token_id whole_word(const struct vocab *v, struct str word, struct buf *spelled)
{
    if (word.n > v->longest)
        return TOKEN_NONE;
    if (v->bpe.raw)
        return token_of(v, word);
    buf_clear(spelled);
    for (size_t i = 0; i < word.n; i++)
        buf_put_utf8(spelled, byte_to_char((unsigned char)word.p[i]));
    return token_of(v, buf_str(spelled));
}

static bool all_newlines(struct str word)
{
    size_t i = 0;
    while (i < word.n && word.p[i] == '\n')
        i++;
    return i == word.n;
}

static bool spell(const struct vocab *v, struct str word, struct merger *m)
{
    merger_clear(m);
    for (size_t i = 0; i < word.n;) {
        unsigned char c = (unsigned char)word.p[i];
        size_t n = v->bpe.raw ? utf8_length(c) : 1;
        if (n > word.n - i)
            n = word.n - i;
        int32_t id = n == 1 ? v->bpe.byte_id[c] : token_map_find(&v->map, (struct str){word.p + i, n});
        if (!merger_add(m, (uint32_t)i, (uint32_t)n, id))
            return false;
        i += n;
    }
    return true;
}

static bool put_segment(const struct vocab *v, struct str text, struct work *w)
{
    const struct bpe *b = &v->bpe;
    struct merger *m = &w->merger;
    if (!spell(v, text, m) || !merger_run(m, bpe_fits, b))
        return false;
    for (int32_t i = m->n ? 0 : -1; i >= 0; i = m->symbols[i].next) {
        const struct symbol *s = &m->symbols[i];
        bool ok = s->id >= 0 && s->id < v->n ? token_push(w->out, s->id)
                                             : put_bytes(b, (struct str){text.p + s->at, s->n}, w->out);
        if (!ok)
            return false;
    }
    return true;
}

static bool put_word(const struct vocab *v, struct str word, struct work *w)
{
    const struct bpe *b = &v->bpe;
    if (b->ignore_merges || (b->line_words && all_newlines(word))) {
        token_id t = whole_word(v, word, &w->word);
        if (t >= 0)
            return token_push(w->out, t);
    }
    for (size_t at = 0, end; at < word.n; at = end) {
        end = b->raw ? segment_end(v, word, at) : word.n;
        if (!put_segment(v, (struct str){word.p + at, end - at}, w))
            return false;
    }
    return true;
}

/* A line begins with a metaspace, and each one begins a word. */
static bool put_line(const struct vocab *v, struct str line, struct work *w)
{
    if (!str_starts(line, SPACE_MARK)) {
        buf_clear(&w->word);
        buf_puts(&w->word, SPACE_MARK);
        buf_add(&w->word, line.p, line.n);
        if (w->word.failed)
            return false;
        line = buf_str(&w->word);
    }
    for (size_t at = 0, end; at < line.n; at = end) {
        end = find_space_mark(line, at + 1);
        if (!put_word(v, (struct str){line.p + at, end - at}, w))
            return false;
    }
    return true;
}

int bpe_tokenize(const struct vocab *v, struct str text, struct work *w, struct err *err)
{
    text = utf8_repair(text, &w->repaired);
    struct str matching = utf8_for_matching(text, &w->matching);
    if (w->repaired.failed || w->matching.failed)
        return no_memory(err);
    if (pretok_split(v->bpe.pre, matching, &w->cuts, err) != 0)
        return -1;
    for (size_t i = 0, at = 0; i < w->cuts.n; at = w->cuts.end[i++]) {
        struct str word = {text.p + at, w->cuts.end[i] - at};
        if (!(v->bpe.metaspace && !all_newlines(word) ? put_line : put_word)(v, word, w))
            return no_memory(err);
    }
    return 0;
}
