/* One step of an engine: which tokens of which requests go into it, and what is made of its logits.
 *
 * First come those that write, one token each (and guesses behind it, if somebody made any), then pieces of
 * prompts as far as the budget goes. Blocks are counted while the step is put together; when the pool is
 * empty, the youngest request goes back to the queue, so that the oldest always gets on. */
#include "engine/schedule.h"

#include "base/mem.h"

#include <string.h>

/* FEW_ROWS: up to so many that write have a step of their own. LAST_ROWS: so many rows at the end of a prompt
 * are never less, where it can be helped: a single one would go through attention as if it was written. */
enum { FEW_ROWS = 4, LAST_ROWS = STEP_LAST_ROWS };

/* ---- ends ---- */

static void leave(struct slot *s)
{
    s->last = s->r->timings;
    s->r = NULL;
    s->leader = NULL;
    s->n_draft = 0;
    s->n_in = 0;
}

static void count_end(struct grappa_engine *e, const struct grappa_request *r, enum grappa_finish finish)
{
    double now = engine_seconds();
    e->stats.n_done++;
    e->stats.n_cancelled += finish == GRAPPA_FINISH_CANCEL;
    if (r->started_at == 0)
        return;
    e->stats.prompt_s += (r->first_at ? r->first_at : now) - r->started_at;
    e->stats.predict_s += r->first_at ? now - r->first_at : 0;
}

void step_end(struct grappa_engine *e, struct slot *s, enum grappa_finish finish, const char *stop_text,
              const struct grappa_err *err)
{
    struct grappa_request *r = s->r;
    count_end(e, r, finish);
    leave(s);
    slots_publish(e);
    request_end(r, s->id, finish, stop_text, err);
}

/* Back to the queue, with what it wrote; its tokens are computed again later. */
static void put_back(struct grappa_engine *e, struct slot *s)
{
    struct grappa_request *r = s->r;
    if (s->n_tokens > r->n_tokens) {
        r->tokens = xrealloc(r->tokens, (size_t)s->n_tokens * sizeof *r->tokens);
        r->n_tokens = s->n_tokens;
    }
    memcpy(r->tokens, s->tokens, (size_t)s->n_tokens * sizeof *r->tokens);
    leave(s);
    slots_trim(e, s, 0);
    pthread_mutex_lock(&e->lock);
    request_queue(e, r);
    pthread_mutex_unlock(&e->lock);
}

/* ---- room ---- */

/* Earlier in line: of higher priority, or there for longer. */
static bool before(const struct slot *a, const struct slot *b)
{
    return a->r->p.priority != b->r->p.priority ? a->r->p.priority > b->r->p.priority
                                                : a->started < b->started;
}

/* The last in line of those that are not in the step yet, `s` among them. */
static struct slot *last_in_line(struct grappa_engine *e, struct slot *s)
{
    struct slot *last = s;
    for (int32_t i = 0; i < e->n_slots; i++) {
        struct slot *o = &e->slots[i];
        if (o->r && o->n_in == 0 && before(last, o))
            last = o;
    }
    return last;
}

/* Blocks for n more tokens of a slot that must get on, if need be from others. False: it had to leave itself.
 */
static bool force_room(struct grappa_engine *e, struct slot *s, int32_t n)
{
    struct step *t = &e->step;
    while (!slots_make_room(e, t->blocks + kv_blocks_for(&e->ctx->kv, s->id, n), true)) {
        struct slot *last = last_in_line(e, s);
        if (last != s) {
            put_back(e, last);
            continue;
        }
        if (t->n > 0) {
            put_back(e, s);
        } else { /* alone, and all of the pool is its own */
            s->r->truncated = true;
            step_end(e, s, GRAPPA_FINISH_LENGTH, NULL, NULL);
        }
        return false;
    }
    return true;
}

/* Whether n more tokens of a slot find room without anybody's loss. */
static bool spare_room(struct grappa_engine *e, const struct slot *s, int32_t n)
{
    return slots_make_room(e, e->step.blocks + kv_blocks_for(&e->ctx->kv, s->id, n), false);
}

/* How many of n more tokens of a slot find room. */
static int32_t fitting(struct grappa_engine *e, const struct slot *s, int32_t n)
{
    const struct kv *kv = &e->ctx->kv;
    slots_make_room(e, e->step.blocks + kv_blocks_for(kv, s->id, n), true);
    for (int32_t free = kv->n_free - e->step.blocks, over; n > 0; n -= over * kv->block_size) {
        over = kv_blocks_for(kv, s->id, n) - free;
        if (over <= 0)
            return n;
    }
    return 0;
}

/* ---- putting it together ---- */

/* Tokens of a slot into the step, logits wanted of the last n_out. Their blocks are there. */
static void put(struct grappa_engine *e, struct slot *s, int32_t n, int32_t n_out)
{
    struct step *t = &e->step;
    t->blocks += kv_blocks_for(&e->ctx->kv, s->id, n);
    e->ctx->guesses[s->id] = s->n_draft;
    for (int32_t i = 0; i < n; i++, t->n++) {
        t->token[t->n] = s->tokens[s->n_past + i];
        t->seq[t->n] = s->id;
        t->logits[t->n] = i >= n - n_out;
    }
    s->n_in = n;
    s->n_out = n_out;
    t->parts[t->n_parts++] = s;
}

/* The slots that run, those first in line first; only those that write, or only the others. */
static int32_t in_line(struct grappa_engine *e, bool writing)
{
    int32_t n = 0;
    for (int32_t i = 0; i < e->n_slots; i++) {
        struct slot *s = &e->slots[i];
        if (!s->r || s->writing != writing || s->leader)
            continue;
        int32_t at = n++;
        for (; at > 0 && before(s, e->line[at - 1]); at--)
            e->line[at] = e->line[at - 1];
        e->line[at] = s;
    }
    return n;
}

static void put_writers(struct grappa_engine *e)
{
    int32_t n = in_line(e, true);
    for (int32_t i = 0; i < n; i++) {
        struct slot *s = e->line[i];
        if (!s->r) /* has been put back meanwhile */
            continue;
        int32_t most = e->step.room - e->step.n - (n - 1 - i), n_in = s->n_tokens - s->n_past + s->n_draft;
        /* Nobody has to go for the sake of guesses. */
        if (n_in > most || (s->n_draft > 0 && !spare_room(e, s, n_in))) {
            n_in -= s->n_draft;
            s->n_draft = 0;
        }
        if (n_in > most) { /* a long way back to where guesses were wrong */
            s->writing = false;
            continue;
        }
        if (force_room(e, s, n_in))
            put(e, s, n_in, s->n_draft + 1);
    }
}

static int32_t left(const struct slot *s)
{
    return s->n_tokens - s->n_past;
}

static int32_t take(const struct grappa_engine *e, struct slot *s, int32_t most)
{
    int32_t n = recall_piece(e, s) - s->share, rest;
    n = n < most ? n : most;
    rest = left(s) - s->share - n;
    if (rest > 0 && rest < LAST_ROWS && n > LAST_ROWS - rest && recall_piece(e, s) == left(s))
        n -= LAST_ROWS - rest;
    s->share += n;
    return n;
}

/* Most of the budget goes to the first in line. A quarter is kept for those with the least to do, so that a
 * short question need not wait for a long document. */
static void share_budget(const struct grappa_engine *e, int32_t n, int32_t budget)
{
    struct slot **line = e->line;
    int32_t kept = n > 1 ? budget / 4 : 0;
    budget -= take(e, line[0], budget - kept);
    for (int32_t k = 1; k < n && budget > 0; k++) {
        struct slot *least = NULL;
        for (int32_t i = 1; i < n; i++) {
            if (line[i]->share == 0 && (!least || left(line[i]) < left(least)))
                least = line[i];
        }
        if (!least)
            break;
        budget -= take(e, least, budget);
    }
    take(e, line[0], budget);
}

/* `must`: if nothing else is in the step, one of them gets on at whatever cost. */
static void put_prompts(struct grappa_engine *e, bool must)
{
    int32_t n = in_line(e, false), budget = e->step.room - e->step.n;
    if (n == 0 || budget <= 0)
        return;
    share_budget(e, n, budget);
    for (int32_t i = 0; i < n; i++) {
        struct slot *s = e->line[i];
        if (!s->r)
            continue;
        int32_t want = s->share, fits = want > 0 ? fitting(e, s, want) : 0;
        if (want > 0 && fits == 0 && must && e->step.n == 0 && force_room(e, s, 1))
            fits = fitting(e, s, want);
        if (fits > 0)
            put(e, s, fits, embed_wants_all(s->r) ? fits : fits == left(s));
    }
}

/* ---- what came out ---- */

/* A new token behind those that are known. False: it was the last. */
static bool add_token(struct grappa_engine *e, struct slot *s, grappa_token t, const float *logits)
{
    const char *stop_text;
    s->tokens[s->n_tokens++] = t;
    e->stats.predicted_tokens++;
    enum grappa_finish finish = output_token(s->r, s->id, t, logits, &stop_text);
    if (finish == GRAPPA_FINISH_NONE && s->n_tokens >= (int32_t)e->n_ctx_slot && !s->r->p.context_shift) {
        s->r->truncated = true;
        finish = GRAPPA_FINISH_LENGTH;
    }
    if (finish == GRAPPA_FINISH_NONE && s->r->constrained && grappa_sampler_finished(s->r->sampler))
        finish = GRAPPA_FINISH_STOP;
    if (finish == GRAPPA_FINISH_NONE)
        return true;
    slots_trim(e, s, s->n_past < s->n_tokens - 1 ? s->n_past : s->n_tokens - 1);
    slots_register(e, s, true);
    step_end(e, s, finish, stop_text, NULL);
    return false;
}

/* Samples one token. False: it was the last. */
static bool write_one(struct grappa_engine *e, struct slot *s, const float *logits, grappa_token guess,
                      grappa_token *t)
{
    if (atomic_exchange(&s->r->end_thoughts, false))
        grappa_sampler_end_thoughts(s->r->sampler);
    *t = grappa_sample(s->r->sampler, logits);
    s->r->timings.n_accepted += *t == guess;
    grappa_sampler_accept(s->r->sampler, *t);
    return add_token(e, s, *t, logits);
}

/* Samples from the rows of logits, the first of them number `row`, as long as what is sampled is what was
 * guessed. */
static void write_rows(struct grappa_engine *e, struct slot *s, int32_t row)
{
    struct grappa_request *r = s->r;
    int32_t n_draft = s->n_draft;
    s->n_draft = 0;
    r->timings.n_drafted += n_draft;
    e->stats.drafted += (uint64_t)n_draft;
    e->stats.drafts += n_draft > 0;
    for (int32_t i = 0; i <= n_draft; i++) {
        grappa_token guess = i < n_draft ? s->tokens[s->n_tokens] : GRAPPA_TOKEN_NONE, t;
        bool more = write_one(e, s, grappa_logits(e->ctx, row + i), guess, &t);
        e->stats.accepted += t == guess;
        if (!more)
            return;
        if (t != guess)
            break;
    }
    if (s->n_past >= s->n_tokens) /* wrong guesses behind */
        slots_trim(e, s, s->n_tokens - 1);
    if (s->n_tokens >= (int32_t)e->n_ctx_slot)
        shift_slot(e, s);
}

static void prompt_done(struct slot *s)
{
    struct grappa_request *r = s->r;
    s->writing = true;
    if (r->first_at == 0) {
        r->first_at = engine_seconds();
        r->timings.prompt_s = r->first_at - r->started_at;
    }
}

static void finish_embedding(struct grappa_engine *e, struct slot *s, int32_t row)
{
    struct grappa_request *r = s->r;
    struct grappa_err err = {0};
    bool whole = s->n_past == s->n_tokens;
    if (s->n_out > 0 && embed_rows(e, r, s->n_past - s->n_out, row, s->n_out, &err) < 0) {
        step_end(e, s, GRAPPA_FINISH_ERROR, NULL, &err);
        return;
    }
    if (whole)
        prompt_done(s);
    if (!output_progress(r, s->id, s->n_past))
        step_end(e, s, GRAPPA_FINISH_CANCEL, NULL, NULL);
    else if (whole)
        step_end(e, s, GRAPPA_FINISH_EOS, NULL, NULL);
}

static void finish_part(struct grappa_engine *e, struct slot *s, int32_t row)
{
    struct grappa_request *r = s->r;
    bool prompt = !s->writing;
    int32_t n_in = s->n_in;
    s->n_in = 0;
    s->n_past += n_in;
    if (prompt) {
        e->stats.prompt_tokens += (uint64_t)n_in;
        r->timings.n_computed += r->first_at == 0 ? n_in : 0;
        if (r->p.embeddings) {
            finish_embedding(e, s, row);
            return;
        }
        recall_piece_done(e, s);
        if (s->n_out > 0) {
            prompt_done(s);
            recall_end(e, s, grappa_logits(e->ctx, row));
        }
        if (!output_progress(r, s->id, s->n_past)) {
            slots_register(e, s, false);
            step_end(e, s, GRAPPA_FINISH_CANCEL, NULL, NULL);
            return;
        }
    }
    if (s->n_out > 0 && r->p.n_predict == 0) {
        slots_register(e, s, true);
        step_end(e, s, GRAPPA_FINISH_LENGTH, NULL, NULL);
        return;
    }
    if (s->n_out > 0)
        write_rows(e, s, row);
    if (s->r == r)
        slots_register(e, s, prompt && s->writing);
}

void step_resume(struct grappa_engine *e, struct slot *s)
{
    struct grappa_request *r = s->r;
    grappa_token t;
    prompt_done(s);
    r->timings.n_computed++; /* see slots_start */
    e->stats.prompt_tokens++;
    if (!output_progress(r, s->id, s->n_past))
        step_end(e, s, GRAPPA_FINISH_CANCEL, NULL, NULL);
    else if (r->p.n_predict == 0)
        step_end(e, s, GRAPPA_FINISH_LENGTH, NULL, NULL);
    else if (write_one(e, s, recall_logits(e, s->tokens, s->n_tokens), GRAPPA_TOKEN_NONE, &t) &&
             s->n_tokens >= (int32_t)e->n_ctx_slot)
        shift_slot(e, s);
}

static void fail_all(struct grappa_engine *e, const struct grappa_err *err)
{
    for (int32_t i = 0; i < e->step.n_parts; i++) {
        struct slot *s = e->step.parts[i];
        slots_trim(e, s, s->n_past); /* which it still has */
        step_end(e, s, GRAPPA_FINISH_ERROR, NULL, err);
    }
}

static void follow(struct grappa_engine *e, struct slot *s)
{
    if (!s->r || !s->leader)
        return;
    slots_follow(e, s);
    if (s->n_past == s->n_tokens)
        step_resume(e, s);
}

static void begin(struct grappa_engine *e)
{
    struct step *t = &e->step;
    t->n = t->n_parts = t->blocks = 0;
    for (int32_t i = 0; i < e->n_slots; i++)
        e->slots[i].n_in = e->slots[i].share = 0;
}

static void compute(struct grappa_engine *e)
{
    struct step *t = &e->step;
    struct grappa_err err = {0};
    if (t->n == 0)
        return;
    struct grappa_batch batch = {.n = (size_t)t->n, .token = t->token, .seq_id = t->seq, .logits = t->logits};
    prepare_start(&e->prepare, t);
    double before = e->ctx->infer_s;
    int status = grappa_decode(e->ctx, &batch, &err);
    prepare_wait(&e->prepare);
    if (status < 0) {
        fail_all(e, &err);
        return;
    }
    speculate_timed(e, e->ctx->infer_s - before);
    mtp_follow(e);
    e->stats.n_steps++;
    for (int32_t i = 0, row = 0; i < t->n_parts; i++) {
        struct slot *s = t->parts[i];
        int32_t n_out = s->n_out;
        finish_part(e, s, row);
        row += n_out;
    }
}

/* Attention sums single tokens of long sequences in another order when there are prompts beside them, so a
 * token's last bits may depend on what it is computed with. While few requests write, they have an inference
 * of their own: it costs little beside a piece of a prompt, and then they write what each would alone. */
void step_run(struct grappa_engine *e)
{
    for (int32_t i = 0; i < e->n_slots; i++)
        follow(e, &e->slots[i]);
    begin(e);
    speculate_guess(e);
    put_writers(e);
    bool apart = e->step.n > 0 && e->step.n <= FEW_ROWS && in_line(e, false) > 0;
    if (apart) {
        compute(e);
        begin(e);
    }
    put_prompts(e, !apart);
    compute(e);
}
