/* The slots of recurrent states against a model of them: a sequence is the list of what its state was after
 * each token, a state a number made of the one before. What a step finds in the slot it reads must be that
 * number, and after every operation the books must balance. */
#include "engine/states.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEQS = 4, TABLES = 2, TOKENS_MAX = 400, WITHIN = 9, SLOTS = 64 };

static const size_t slot_bytes[TABLES] = {8, 24};

struct pool {
    struct states s;
    int64_t want[SEQS][TOKENS_MAX + 1]; /* by length; [0] is 0 */
    int32_t n[SEQS];
    int64_t next; /* a number that was never written */
};

static void pool_init(struct pool *p)
{
    struct err err = ERR_INIT;
    memset(p, 0, sizeof *p);
    p->next = 1;
    if (states_init(&p->s, SEQS, 0, WITHIN, slot_bytes, TABLES, &err) != 0)
        fail_msg("%s", err.text);
}

static int64_t value(const struct states *s, int32_t slot)
{
    int64_t first, v;
    memcpy(&first, s->tables[0] + (size_t)slot * slot_bytes[0], sizeof first);
    for (size_t t = 0; t < TABLES; t++) {
        for (size_t at = 0; at < slot_bytes[t]; at += sizeof v) {
            memcpy(&v, s->tables[t] + (size_t)slot * slot_bytes[t] + at, sizeof v);
            assert_int_equal(v, first);
        }
    }
    return first;
}

static void write_value(struct states *s, int32_t slot, int64_t v)
{
    for (size_t t = 0; t < TABLES; t++) {
        for (size_t at = 0; at < slot_bytes[t]; at += sizeof v)
            memcpy(s->tables[t] + (size_t)slot * slot_bytes[t] + at, &v, sizeof v);
    }
}

/* Between batches: each slot is free, or held as often as sequences say; states are those of their lengths.
 */
static void check(const struct pool *p)
{
    const struct states *s = &p->s;
    int32_t refs[SLOTS] = {0}, used = 0, within = 0;
    assert_true(s->n_slots <= SLOTS);
    for (int32_t i = 0; i < SEQS; i++) {
        const struct states_seq *q = &s->seqs[i];
        assert_int_equal(q->now.n_tokens, p->n[i]);
        assert_int_equal(value(s, q->now.slot), p->want[i][p->n[i]]);
        refs[q->now.slot]++;
        for (int32_t k = 0; k < q->n_kept; k++) {
            assert_true(q->kept[k].n_tokens > (k ? q->kept[k - 1].n_tokens : 0));
            assert_true(q->kept[k].n_tokens <= p->n[i]);
            assert_int_equal(value(s, q->kept[k].slot), p->want[i][q->kept[k].n_tokens]);
            refs[q->kept[k].slot]++;
        }
        if (q->back.slot != 0) {
            assert_true(q->back.n_tokens <= p->n[i]);
            assert_int_equal(value(s, q->back.slot), p->want[i][q->back.n_tokens]);
            refs[q->back.slot]++;
        }
        for (int32_t k = 0; k < q->n_each; k++, within++) {
            assert_true(q->each_from + k < p->n[i]);
            assert_int_equal(value(s, q->each[k]), p->want[i][q->each_from + k]);
            refs[q->each[k]]++;
        }
    }
    assert_int_equal(s->n_spare, WITHIN - within);
    assert_int_equal(value(s, 0), 0);
    for (int32_t i = 0; i < s->n_free; i++) {
        assert_int_equal(refs[s->free_list[i]], 0);
        assert_int_equal(s->refs[s->free_list[i]], 0);
    }
    for (int32_t slot = 1; slot < s->n_slots; slot++) {
        assert_int_equal(s->refs[slot], refs[slot]);
        used += refs[slot] > 0;
    }
    assert_int_equal(s->n_free + used, s->n_slots - 1);
}

/* One inference for some sequences: all slots are read before any is written. `each`: a state after every
 * token, as long as there are slots. */
static void step(struct pool *p, const int32_t *n, bool each)
{
    int32_t slots[SEQS][STATES_EACH + 2], n_to[SEQS];
    bool taken[SLOTS] = {false};
    for (int32_t i = 0; i < SEQS; i++) {
        if (n[i] == 0)
            continue;
        n_to[i] = states_step(&p->s, i, n[i], each, slots[i]);
        assert_true(n_to[i] == 1 || (each && n_to[i] == n[i]));
        assert_int_equal(value(&p->s, slots[i][0]), p->want[i][p->n[i]]);
        for (int32_t k = 1; k <= n_to[i]; k++) {
            assert_true(slots[i][k] > 0 && !taken[slots[i][k]]);
            taken[slots[i][k]] = true;
        }
    }
    for (int32_t i = 0; i < SEQS; i++) {
        if (n[i] == 0)
            continue;
        assert_false(taken[slots[i][0]]);
        for (int32_t k = 0; k < n[i]; k++) {
            p->want[i][++p->n[i]] = p->next++;
            if (n_to[i] == n[i])
                write_value(&p->s, slots[i][1 + k], p->want[i][p->n[i]]);
        }
        write_value(&p->s, slots[i][n_to[i]], p->want[i][p->n[i]]);
    }
}

static uint32_t random_below(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % n);
}

static void random_batch(struct pool *p, uint64_t *rng)
{
    struct pool before = *p;
    bool keep[SEQS];
    int32_t back[SEQS];
    states_begin(&p->s);
    for (uint32_t left = 1 + random_below(rng, 4); left > 0; left--) {
        int32_t n[SEQS];
        for (int32_t i = 0; i < SEQS; i++)
            n[i] = p->n[i] < TOKENS_MAX - 5 ? (int32_t)random_below(rng, 5) : 0;
        step(p, n, random_below(rng, 2));
    }
    if (random_below(rng, 3) == 0) { /* a step has failed */
        states_undo(&p->s);
        memcpy(p->want, before.want, sizeof p->want);
        memcpy(p->n, before.n, sizeof p->n);
        return;
    }
    for (int32_t i = 0; i < SEQS; i++)
        keep[i] = random_below(rng, 2) > 0;
    for (int32_t i = 0; i < SEQS; i++)
        back[i] = (int32_t)random_below(rng, 3);
    states_commit(&p->s, random_below(rng, 8) ? keep : NULL, random_below(rng, 8) ? back : NULL);
}

static void test_a_batch_taken_back(void **state)
{
    (void)state;
    struct pool p;
    const bool keep[SEQS] = {true};
    pool_init(&p);
    states_begin(&p.s);
    step(&p, (int32_t[]){10, 0, 0, 0}, false);
    states_commit(&p.s, keep, NULL);
    for (int i = 0; i < 5; i++) { /* what was kept stays */
        states_begin(&p.s);
        step(&p, (int32_t[]){1, 0, 0, 0}, false);
        states_commit(&p.s, NULL, NULL);
        int32_t before = p.n[0];
        states_begin(&p.s);
        step(&p, (int32_t[]){4, 0, 0, 0}, false);
        states_commit(&p.s, NULL, (int32_t[SEQS]){3});
        check(&p);
        assert_int_equal(states_trim_point(&p.s, 0, before + 3), before);
        states_trim(&p.s, 0, before);
        p.n[0] = before;
        check(&p);
        assert_int_equal(states_trim_point(&p.s, 0, before - 1), 10);
    }
    states_release(&p.s);
}

static void test_states_within_a_step(void **state)
{
    (void)state;
    struct pool p;
    pool_init(&p);
    for (int32_t to = 1; to <= 5; to++) {
        int32_t before = p.n[0];
        states_begin(&p.s);
        step(&p, (int32_t[]){5, 5, 5, 0}, true); /* the third finds no slots for them */
        states_commit(&p.s, NULL, (int32_t[SEQS]){4, 4, 4});
        check(&p);
        assert_int_equal(p.s.n_spare, WITHIN - 8);
        assert_int_equal(states_trim_point(&p.s, 0, before + to), before + to);
        assert_int_equal(states_trim_point(&p.s, 2, p.n[2] - 1), p.n[2] - 5);
        states_trim(&p.s, 0, before + to);
        p.n[0] = before + to;
        check(&p);
    }
    states_release(&p.s);
}

static void test_random_operations(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct pool p;
        uint64_t rng = seed;
        pool_init(&p);
        for (int i = 0; i < 400; i++) {
            int32_t a = (int32_t)random_below(&rng, SEQS), b = (int32_t)random_below(&rng, SEQS);
            switch (random_below(&rng, 4)) {
            case 0:
                states_copy(&p.s, a, b);
                memcpy(p.want[b], p.want[a], sizeof p.want[b]);
                p.n[b] = p.n[a];
                break;
            case 1: {
                int32_t wish = (int32_t)random_below(&rng, (uint32_t)p.n[a] + 1);
                int32_t point = states_trim_point(&p.s, a, wish);
                assert_true(point >= 0 && point <= wish);
                states_trim(&p.s, a, point);
                p.n[a] = point;
                break;
            }
            default:
                random_batch(&p, &rng);
            }
            check(&p);
        }
        states_release(&p.s);
    }
}

static void test_a_failed_batch_keeps_what_was_kept(void **state)
{
    (void)state;
    struct pool p;
    const bool keep[SEQS] = {true};
    pool_init(&p);
    for (int i = 1; i <= STATES_KEPT + 2; i++) {
        states_begin(&p.s);
        step(&p, (int32_t[]){10, 0, 0, 0}, false);
        states_commit(&p.s, keep, NULL);
        check(&p);
    }
    int32_t end = 10 * (STATES_KEPT + 2), oldest = end - 10 * (STATES_KEPT - 1);
    assert_int_equal(states_trim_point(&p.s, 0, end), end);
    assert_int_equal(states_trim_point(&p.s, 0, end - 1), end - 10);
    assert_int_equal(states_trim_point(&p.s, 0, oldest), oldest);
    assert_int_equal(states_trim_point(&p.s, 0, oldest - 1), 0);
    states_begin(&p.s);
    for (int i = 0; i < 5; i++) {
        step(&p, (int32_t[]){7, 3, 0, 0}, i % 2);
    }
    states_undo(&p.s);
    p.n[0] = end;
    p.n[1] = 0;
    check(&p);
    assert_int_equal(states_trim_point(&p.s, 0, oldest), oldest);
    assert_int_equal(states_trim_point(&p.s, 1, 15), 0);
    states_release(&p.s);
}

static void test_without_tables_everything_goes(void **state)
{
    (void)state;
    struct states s;
    int32_t slots[2] = {5, 5};
    assert_int_equal(states_init(&s, SEQS, 0, 0, NULL, 0, NULL), 0);
    states_begin(&s);
    assert_int_equal(states_step(&s, 1, 10, false, slots), 1);
    assert_int_equal(slots[0], 0);
    assert_int_equal(slots[1], 0);
    states_commit(&s, (bool[SEQS]){true, true, true, true}, NULL);
    assert_int_equal(states_trim_point(&s, 1, 7), 7);
    states_trim(&s, 1, 7);
    states_copy(&s, 1, 2);
    states_release(&s);
}

static void test_more_than_memory_is_refused(void **state)
{
    (void)state;
    struct states s;
    struct err err = ERR_INIT;
    assert_int_equal(states_init(&s, SEQS, 0, 0, (size_t[]){SIZE_MAX / 2}, 1, &err), -1);
    assert_int_equal(err.code, ERR_MEMORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_operations),
        cmocka_unit_test(test_a_failed_batch_keeps_what_was_kept),
        cmocka_unit_test(test_a_batch_taken_back),
        cmocka_unit_test(test_states_within_a_step),
        cmocka_unit_test(test_without_tables_everything_goes),
        cmocka_unit_test(test_more_than_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
