/* What a step costs by its rows, and how many guesses are worth theirs.
 *
 * The first rows of a step are nearly free where memory is what takes the time, and dear where each row goes
 * to experts of its own, so costs are measured: an average for each number of rows that comes up, forgotten
 * now and then so that a bad moment of the machine isn't kept for ever. */
#include "engine/speculate.h"

#include <string.h>

enum { MEASURED = 3, FORGET = 512 }; /* steps */

/* Before anything is known: what a dense model on a CPU takes. */
static double guess_cost(int32_t rows)
{
    return 1 + 0.1 * (rows - 1);
}

void cost_add(struct row_cost *c, int32_t rows, double seconds)
{
    if (rows < 1 || rows > GUESS_MAX)
        return;
    if (++c->n_steps % FORGET == 0) {
        for (int32_t i = 1; i <= GUESS_MAX; i++)
            c->n[i] = i == 1 ? c->n[i] : 0;
    }
    double *s = &c->seconds[rows];
    int32_t n = ++c->n[rows];
    double weight = n < 8 ? 1.0 / n : 1.0 / 8;
    if (n > MEASURED && seconds > 2 * *s) /* somebody else had the processor */
        seconds = 2 * *s;
    *s += weight * (seconds - *s);
}

double cost_of(const struct row_cost *c, int32_t rows)
{
    int32_t below = rows, above = rows;
    if (c->n[1] < MEASURED || rows <= 1)
        return guess_cost(rows < 1 ? 1 : rows);
    while (below > 1 && (below > GUESS_MAX || c->n[below] < MEASURED))
        below--;
    while (above <= GUESS_MAX && c->n[above] < MEASURED)
        above++;
    double low = c->seconds[below] / c->seconds[1];
    low = low > 1 ? low : 1;
    if (below == rows)
        return low;
    if (above > GUESS_MAX) { /* beyond what was measured: as what was expected rises */
        double step = below > 1 ? (low - 1) / (below - 1) : 0;
        step = step > 0.1 ? step : 0.1;
        return low + step * (rows - below);
    }
    double high = c->seconds[above] / c->seconds[1];
    high = high > low ? high : low;
    return low + (high - low) * (rows - below) / (above - below);
}

/* The offer whose next guess is most likely needed; -1: none is left. */
static int32_t next_offer(const struct offer *offers, const float *chance, int32_t n)
{
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++) {
        if (offers[i].n < offers[i].most && (best < 0 || chance[i] > chance[best]))
            best = i;
    }
    return best;
}

void cost_choose(const struct row_cost *c, struct offer *offers, int32_t n_offers, int32_t rows, double each)
{
    float chance[GUESS_MAX] = {0};
    int32_t taken[4 * GUESS_MAX] = {0}, n_taken = 0, n_best = 0, deepest = 0, room = GUESS_MAX - rows, next;
    double tokens = rows, best = rows / cost_of(c, rows);
    n_offers =
        n_offers < GUESS_MAX ? n_offers : GUESS_MAX; /* with so many requests there is nothing to win */
    for (int32_t i = 0; i < n_offers; i++) {
        chance[i] = offers[i].right;
        offers[i].n = 0;
    }
    while (n_taken < room && (next = next_offer(offers, chance, n_offers)) >= 0) {
        struct offer *o = &offers[next];
        tokens += (double)chance[next];
        chance[next] *= o->right;
        taken[n_taken++] = next;
        deepest = ++o->n > deepest ? o->n : deepest;
        double speed = tokens / (cost_of(c, rows + n_taken) + each * deepest);
        if (speed > best) {
            best = speed;
            n_best = n_taken;
        }
    }
    while (n_taken > n_best)
        offers[taken[--n_taken]].n--;
}
