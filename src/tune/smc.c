/* smc.c - sequential Monte Carlo with moves that leave the prior alone: sampling with labels only
 * in 500 dimensions. doc/methods.md, L7 to L11, L19, L20.
 *
 * Importance weights collapse in many dimensions: the density of a perturbed z under the prior and
 * under its proposal differ by a factor that grows with the dimension. Here nothing is weighed. A
 * move
 *
 *     z' = sqrt(1 - b^2) z + b xi,   xi ~ prior
 *
 * is reversible under the prior whatever b is (Crank-Nicolson; Cotter et al. 2013), so that the
 * only question left is whether z' makes few enough errors ("hard"), or how much less likely its
 * errors make the labels ("soft"). How far prompts must be from where they begin to change an
 * answer differs from model to model, so the prior's width is moved along with z (--prior-spread).
 *
 * hard: the first population is drawn from the prior by rejection, with a tolerance that a quarter
 * of a few draws meets. A level lowers the tolerance to the count that a given share of the
 * population meets, but by one at least; members above it are replaced by copies of the others, and
 * the copies are moved. soft: a level raises the power of the likelihood as far as the effective
 * sample size allows, resamples and moves all.
 *
 * Moves of a level are made in sweeps, until a member that can move is likely to have moved; b
 * follows the share of moves that are accepted. Which members move and how often depends on the
 * run's state alone. Where a budget ends before half of a level's copies have moved, the level is
 * taken back: copies of a few are no sample. */
#include "tune/smc.h"

#include "base/alloc.h"
#include "base/clamp.h"
#include "base/err.h"
#include "tune/directions.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    BATCH = 20,
    MAX_MISSES = 50,    /* batches without an acceptance before the first population is given up */
    MOST_MEMBERS = 50,  /* unless told otherwise; */
    LEAST_MEMBERS = 20, /* with a budget, so many that a member's part of it would pay for */
    MEMBER_COST = 12,   /* z: four for the first population, one for dev, the rest for levels */
    BISECTIONS = 50,    /* for the power of the likelihood */
    RETRIES = 4,        /* levels in a row at one tolerance, if too few members are below it */
    FEWEST =
        10, /* a tenth of the population is too few to go on from, unless retries are used up */
};

enum { SCARCE = 10 }; /* fewer than one draw in so many is accepted */
static const double LEAST_STEP = 1e-3;
static const double STEP_RANGE = 2; /* a move's b is within a factor of this from the run's */
static const double STEP_GAIN = 1;  /* how fast b follows the acceptance */

typedef struct alone {
    kh_smc_opts smc;
} alone;

static const kh_opt smc_table[] = { KH_LABELS_ROWS_EVERY(kh_smc_opts, labels, "0"),
    { "prior-spread", KH_OPT_NUMBER, offsetof(kh_smc_opts, labels.prior_spread), "1", .min = 0,
        .max = 4, .arg = "X",
        .help = "of the logarithm of the prior's width, which is learned with z; 0: "
                "--prior-variance alone" },
    KH_SMC_ROWS(alone, smc, "6", "0.3"), { 0 } };
static const kh_opt toy_table[] = { KH_SMC_ROWS(alone, smc, "400", "0"), { 0 } };

/* ----------------------------------------------------------------------------------- the state */

typedef struct smc {
    const kh_smc_opts *o;
    kh_simulator *s;
    kh_monitor *w;
    uint64_t seed;
    int level;
    uint32_t sweep;            /* of the whole run: names the random streams */
    double b;                  /* step size */
    int eps;                   /* hard: the tolerance */
    int reused;                /* hard: members that the first draws gave */
    double power;              /* soft: of the likelihood, 0 to 1 */
    double rate;               /* soft: what an error costs, log((1 - eta) (K - 1) / eta) */
    kh_population now, before; /* this level's, and what it came from */
    kh_population batch;       /* candidates, */
    int member[BATCH];         /* whose moves they are, */
    int allowance[BATCH];
    int *moving; /* [n_moving] members that take part in the sweeps of this level */
    int n_moving;
    bool *moved; /* [samples] in this level */
    bool taken_back;
    int *sorted;              /* [samples or first draws] scratch */
    double *weight;           /* [samples] soft: scratch */
    kh_directions directions; /* learned from the population that a level begins with, */
    double *x;                /* [samples + 1, its dim] these members, as draws from N(0, I) */
    int retries;
    double ess;           /* members that met this level, or their effective number */
    long tried, accepted; /* moves of this level */
} smc;

/* A budget is spent on about MEMBER_COST questions about all rows for each member; fewer members
 * than LEAST_MEMBERS could not spread. */
int kh_smc_members(const kh_smc_opts *o, long long budget, int cost) {
    long long n = budget > 0 ? budget / ((long long)MEMBER_COST * cost) : MOST_MEMBERS;
    if (o->samples > 0)
        return o->samples;
    if (n > MOST_MEMBERS)
        return MOST_MEMBERS;
    return n < LEAST_MEMBERS ? LEAST_MEMBERS : (int)n;
}

static int smc_new(
    smc *m, const kh_smc_opts *o, kh_simulator *s, uint64_t seed, kh_monitor *w, kh_err *err) {
    int classes = s->n_class > 1 ? s->n_class : 2;
    *m = (smc){ .o = o,
        .s = s,
        .w = w,
        .seed = seed,
        .b = o->step,
        .eps = s->n_error,
        .rate = log((1 - o->noise) * (classes - 1) / o->noise) };
    s->tight = o->early == KH_SMC_EARLIER;
    int rc = kh_population_new(&m->now, o->samples, s, err);
    if (rc == 0)
        rc = kh_population_new(&m->before, o->samples, s, err);
    if (rc == 0)
        rc = kh_population_new(&m->batch, BATCH, s, err);
    m->moving = kh_calloc((size_t)o->samples, sizeof *m->moving);
    m->moved = kh_calloc((size_t)o->samples, sizeof *m->moved);
    m->sorted = kh_calloc(
        (size_t)(o->samples > o->first_draws ? o->samples : o->first_draws), sizeof *m->sorted);
    m->weight = kh_calloc((size_t)o->samples, sizeof *m->weight);
    if (rc == 0 && o->learn && !s->move) {
        rc = kh_directions_new(&m->directions, o->samples, s->dim + (s->prior_spread > 0), err);
        m->x = kh_malloc(((size_t)o->samples + 1) * (size_t)m->directions.dim * sizeof *m->x);
        if (rc == 0 && !m->x)
            rc = kh_fail_memory(err);
    }
    return rc == 0 && (!m->moving || !m->moved || !m->sorted || !m->weight) ? kh_fail_memory(err)
                                                                            : rc;
}

static void smc_free(smc *m) {
    kh_population_free(&m->now);
    kh_population_free(&m->before);
    kh_population_free(&m->batch);
    kh_free(m->moving);
    kh_free(m->moved);
    kh_free(m->sorted);
    kh_free(m->weight);
    kh_directions_free(&m->directions);
    kh_free(m->x);
}

static float *z_of(const kh_population *p, int i) { return p->z + (size_t)i * (size_t)p->dim; }

/* Early rejection: what a candidate may make at most is known before it is asked, for hard and for
 * soft acceptance alike. */
static int ask(smc *m, int n, uint32_t first, kh_err *err) {
    kh_candidates c = { m->batch.z, n, m->sweep, first };
    for (int i = 0; i < n; i++)
        m->allowance[i] =
            m->o->early && m->allowance[i] < m->s->n_error ? m->allowance[i] : m->s->n_error;
    return m->s->errors(m->s, &c, m->allowance, m->batch.errors, m->batch.answer, err);
}

/* n candidates, after which there will be so many members. */
static bool may_ask(smc *m, int n, int members_then, bool have) {
    return kh_monitor_may(m->w, (long long)n * m->s->cost, members_then, have);
}

static void sort_ints(int *x, int n) {
    for (int i = 1; i < n; i++) {
        int v = x[i], j = i;
        for (; j > 0 && x[j - 1] > v; j--)
            x[j] = x[j - 1];
        x[j] = v;
    }
}

/* ------------------------------------------------------------------------ the first population */

/* n prior draws into the batch, numbered from `first` within the sweep. */
static int draw(smc *m, int n, uint32_t first, int allowance, kh_err *err) {
    for (int i = 0; i < n; i++) {
        kh_rng r = kh_rng_stream(m->seed, KH_RNG_SMC, m->sweep, first + (uint32_t)i);
        m->batch.width[i] = kh_prior_draw(m->s, &r, z_of(&m->batch, i));
        m->allowance[i] = allowance;
        m->batch.moves[i] = 0;
    }
    return ask(m, n, first, err);
}

/* The tolerance that few draws have set is sometimes one that hardly any draw meets. Then moves of
 * the members that are there give others for less (start). */
static bool is_scarce(const smc *m, uint32_t drawn, int have) {
    return m->o->reuse && m->o->accept == KH_SMC_HARD && drawn >= 2 * BATCH && have > 0 &&
        (uint32_t)(have - m->reused) * SCARCE < drawn;
}

/* How many members there may be after so many draws more. Few of them will be accepted: where the
 * budget would not pay for a look at all of them, the draws are made all the same, and no more are
 * taken than it pays for. (Not by the paper's effort, whose runs end where those of 0.1 did.) */
static int members_after(const smc *m, int draws, int have, int n) {
    int most = n - have < draws ? n : have + draws;
    int room = m->o->reuse ? kh_monitor_room(m->w, (long long)draws * m->s->cost, most) : most;
    return room > have ? room : most;
}

/* Draws until n members with at most eps errors are there, after those that are there already; they
 * are their own ancestors.
 * `tolerant`: all draws will do. */
static int fill(smc *m, int n, bool tolerant, kh_err *err) {
    uint32_t drawn = 0;
    int rc = 0, misses = 0, have = m->reused;
    while (rc == 0 && have < n && misses < MAX_MISSES && !is_scarce(m, drawn, have)) {
        int some = tolerant && n - have < BATCH ? n - have : BATCH, before = have;
        int most = members_after(m, some, have, n);
        if (!may_ask(m, some, most, have > 0))
            break;
        rc = draw(m, some, drawn, m->eps, err);
        for (int i = 0; i < some && rc == 0 && have < most; i++)
            if (m->batch.errors[i] <= m->eps) {
                kh_population_put(&m->now, have, &m->batch, i);
                m->now.ancestor[have] = have;
                have++;
            }
        drawn += (uint32_t)some;
        misses = have > before ? 0 : misses + 1;
    }
    if (rc == 0 && have < n && !is_scarce(m, drawn, have))
        kh_monitor_stop(
            m->w, "only %d of %u prior draws had at most %d errors", have, (unsigned)drawn, m->eps);
    if (have > 0)
        m->now.n = have;
    m->tried = (long)drawn;
    m->accepted = have - m->reused;
    m->sweep++;
    return rc;
}

/* The draws that were made for the tolerance, of which the first ones are in m->before, and meet it
 * become the first members. */
static void reuse_draws(smc *m, int drawn) {
    int most = drawn < m->o->samples ? drawn : m->o->samples;
    for (int i = 0; i < most && m->o->reuse; i++)
        if (m->before.errors[i] <= m->eps) {
            kh_population_put(&m->now, m->reused, &m->before, i);
            m->now.ancestor[m->reused] = m->reused;
            m->reused++;
        }
    m->now.n = m->reused > 1 ? m->reused : 1;
}

/* L7: the first tolerance is the error count that a quarter of a few prior draws meets. To go there
 * by rejection takes no more queries than by levels from a wider one, and gives independent
 * members. The best of the draws is kept in case that nothing else is found within the budget. */
static int first_tolerance(smc *m, kh_err *err) {
    int rc = 0, n = m->o->first_draws, drawn = 0;
    while (
        rc == 0 && drawn < n && may_ask(m, n - drawn < BATCH ? n - drawn : BATCH, 1, drawn > 0)) {
        int some = n - drawn < BATCH ? n - drawn : BATCH;
        rc = draw(m, some, (uint32_t)drawn, m->s->n_error, err);
        for (int i = 0; i < some && rc == 0; i++) {
            m->sorted[drawn + i] = m->batch.errors[i];
            if (drawn + i == 0 || m->batch.errors[i] < m->now.errors[0])
                kh_population_put(&m->now, 0, &m->batch, i);
            if (drawn + i < m->o->samples)
                kh_population_put(&m->before, drawn + i, &m->batch, i);
        }
        drawn += some;
    }
    sort_ints(m->sorted, drawn);
    if (drawn > 0)
        m->eps = m->sorted[(drawn - 1) / 4] > m->o->tolerance ? m->sorted[(drawn - 1) / 4]
                                                              : m->o->tolerance;
    reuse_draws(m, drawn);
    m->sweep++;
    return rc;
}

/* ----------------------------------------------------------------------------------- selection */

/* Members are at most a few hundred; they are counted anew wherever that is needed. */
static int count_within(const smc *m, int eps) {
    int n = 0;
    for (int i = 0; i < m->now.n; i++)
        n += m->now.errors[i] <= eps;
    return n;
}

/* L8: the tolerance that a share of the members meets, lower than the last one. False: too few
 * members are below that. */
static bool lower_tolerance(smc *m) {
    int n = m->now.n, rank = (int)ceil(m->o->survivors * n) - 1;
    memcpy(m->sorted, m->now.errors, (size_t)n * sizeof *m->sorted);
    sort_ints(m->sorted, n);
    int eps = m->sorted[rank < 0 ? 0 : rank] < m->eps ? m->sorted[rank < 0 ? 0 : rank] : m->eps - 1;
    eps = eps > m->o->tolerance ? eps : m->o->tolerance;
    int met = count_within(m, eps);
    if (met == 0 || (met * FEWEST < n && m->retries < RETRIES))
        return false;
    m->eps = eps;
    return true;
}

/* Members above the tolerance become copies of those that meet it, each of which is as likely to be
 * copied; the copies move. If all meet it, because the tolerance could not be lowered yet, all
 * move. */
static void replace(smc *m) {
    kh_population_copy(&m->before, &m->now);
    kh_rng r = kh_rng_stream(m->seed, KH_RNG_RESAMPLE, (uint32_t)m->level, 0);
    double u = kh_rng_uniform(&r);
    int n = m->now.n, met = 0, copies = n - count_within(m, m->eps), k = 0;
    for (int i = 0; i < n; i++)
        if (m->now.errors[i] <= m->eps)
            m->sorted[met++] = i;
    m->n_moving = 0;
    for (int i = 0; i < n; i++) {
        bool above = m->now.errors[i] > m->eps;
        if (above) {
            int from = (int)((k++ + u) * met / copies);
            kh_population_put(&m->now, i, &m->now, m->sorted[from < met ? from : met - 1]);
        }
        if (above || copies == 0)
            m->moving[m->n_moving++] = i;
    }
    m->ess = met;
}

/* The weights that more power by `more` gives, and their effective sample size. */
static double weigh(smc *m, double more) {
    double sum = 0, squares = 0;
    int least = m->now.errors[0];
    for (int i = 1; i < m->now.n; i++)
        least = m->now.errors[i] < least ? m->now.errors[i] : least;
    for (int i = 0; i < m->now.n; i++) {
        m->weight[i] = exp(-more * m->rate * (m->now.errors[i] - least));
        sum += m->weight[i];
        squares += m->weight[i] * m->weight[i];
    }
    for (int i = 0; i < m->now.n; i++)
        m->weight[i] /= sum;
    return sum * sum / squares;
}

/* L10: as much more power as leaves the wanted effective sample size; then systematic resampling,
 * and all move. */
static void raise_power(smc *m) {
    int n = m->now.n;
    double low = 0, high = 1 - m->power, want = m->o->survivors * n, sum = 0;
    if (weigh(m, high) < want) {
        for (int i = 0; i < BISECTIONS; i++) {
            double mid = (low + high) / 2;
            *(weigh(m, mid) < want ? &high : &low) = mid;
        }
        m->power += high;
    } else
        m->power = 1;
    m->ess = weigh(m, high);
    kh_rng r = kh_rng_stream(m->seed, KH_RNG_RESAMPLE, (uint32_t)m->level, 0);
    double u = kh_rng_uniform(&r);
    for (int i = 0, taken = 0; i < n; i++) {
        sum += m->weight[i] * n;
        for (; taken < n && (taken + u < sum || i == n - 1); taken++)
            kh_population_put(&m->before, taken, &m->now, i);
    }
    m->before.n = n;
    kh_population old = m->now;
    m->now = m->before;
    m->before = old;
    m->n_moving = n;
    for (int i = 0; i < n; i++)
        m->moving[i] = i;
}

/* --------------------------------------------------------------------------------------- moves */

/* A member as what has the prior N(0, I): z without its width, and the width's u. */
static void put_standard(const smc *m, const kh_population *p, int i, double *x) {
    int dim = m->s->dim;
    double sd = sqrt(m->s->prior_var) * exp(m->s->prior_spread * p->width[i]);
    for (int j = 0; j < dim; j++)
        x[j] = (double)z_of(p, i)[j] / sd;
    if (m->s->prior_spread > 0)
        x[dim] = p->width[i];
}

/* L19: from the members that a level begins with, each once, before they are moved. */
static void learn_directions(smc *m) {
    size_t each = (size_t)m->directions.dim;
    int n = 0;
    if (!m->x)
        return;
    for (int i = 0; i < m->now.n; i++) {
        bool again = false;
        put_standard(m, &m->now, i, m->x + (size_t)n * each);
        for (int j = 0; j < n && !again; j++)
            again =
                memcmp(m->x + (size_t)j * each, m->x + (size_t)n * each, each * sizeof *m->x) == 0;
        n += !again;
    }
    kh_directions_learn(&m->directions, m->x, n);
}

/* L20 */
static void step_along(smc *m, int slot, int member, double b, kh_rng *r) {
    int dim = m->s->dim;
    double *from = m->x, *to = m->x + m->directions.dim;
    put_standard(m, &m->now, member, from);
    kh_directions_move(&m->directions, b, r, from, to);
    double width = m->s->prior_spread > 0 ? to[dim] : 0,
           sd = sqrt(m->s->prior_var) * exp(m->s->prior_spread * width);
    for (int j = 0; j < dim; j++)
        z_of(&m->batch, slot)[j] = (float)(sd * to[j]);
    m->batch.width[slot] = width;
}

/* L9: z and its width, as far away as b says. */
static void step(smc *m, int slot, int member, double b, kh_rng *r) {
    double keep = sqrt(1 - b * b), was = m->now.width[member], width = was,
           spread = m->s->prior_spread;
    if (spread > 0) /* (u, z exp(-spread u)) has a Gaussian prior, and it is this that moves */
        width = keep * was + b * kh_rng_normal(r);
    double stretch = keep * exp(spread * (width - was)),
           noise = b * sqrt(m->s->prior_var) * exp(spread * width);
    const float *from = z_of(&m->now, member);
    float *z = z_of(&m->batch, slot);
    if (m->s->move)
        m->s->move(m->s, r, b, from, z);
    for (int j = 0; j < m->s->dim && !m->s->move; j++)
        z[j] = (float)(stretch * (double)from[j] + noise * kh_rng_normal(r));
    m->batch.width[slot] = width;
}

/* A candidate for a member, and the errors that it may make. */
static void propose(smc *m, int slot, int member, uint32_t number) {
    kh_rng r = kh_rng_stream(m->seed, KH_RNG_SMC, m->sweep, number);
    double b = m->b * pow(STEP_RANGE, 2 * kh_rng_uniform(&r) - 1), u = kh_rng_uniform(&r);
    b = b < 1 ? b : 1;
    if (m->x)
        step_along(m, slot, member, b, &r);
    else
        step(m, slot, member, b, &r);
    m->member[slot] = member;
    m->allowance[slot] = m->eps;
    if (m->o->accept ==
        KH_SMC_SOFT) { /* L11: accept if log u < -power rate (errors more); known before asking */
        double more = -log(u) / (m->power * m->rate), most = m->s->n_error - m->now.errors[member];
        m->allowance[slot] = m->now.errors[member] + (int)(more < most ? more : most);
    }
}

/* One move for each moving member. Stops within it if the budget ends: members that have moved are
 * as good as the others. */
static int sweep(smc *m, kh_err *err) {
    int rc = 0;
    long tried = 0, accepted = 0;
    for (int first = 0; rc == 0 && first < m->n_moving; first += BATCH) {
        int n = m->n_moving - first < BATCH ? m->n_moving - first : BATCH, within[BATCH];
        if (!may_ask(m, n, m->now.n, true))
            break;
        for (int i = 0; i < n; i++) {
            propose(m, i, m->moving[first + i], (uint32_t)(first + i));
            within[i] = m->allowance[i];
        }
        rc = ask(m, n, (uint32_t)first, err);
        for (int i = 0; i < n && rc == 0; i++) {
            bool ok = m->batch.errors[i] <= within[i];
            if (ok) {
                m->batch.ancestor[i] = m->now.ancestor[m->member[i]];
                m->batch.moves[i] = m->now.moves[m->member[i]] + 1;
                kh_population_put(&m->now, m->member[i], &m->batch, i);
                m->moved[m->member[i]] = true;
            }
            accepted += ok;
            tried++;
        }
    }
    if (tried > 0) {
        m->b *= exp(STEP_GAIN * ((double)accepted / (double)tried - m->o->target));
        m->b = kh_clamp(m->b, LEAST_STEP, 1);
    }
    m->tried += tried;
    m->accepted += accepted;
    m->sweep++;
    return rc;
}

/* Sweeps until a member has stayed with probability `unmoved` or less, as far as the share of
 * accepted moves tells. */
static int move(smc *m, kh_err *err) {
    int rc = 0;
    double stayed = 1;
    m->tried = m->accepted = 0;
    memset(m->moved, 0, (size_t)m->now.n * sizeof *m->moved);
    for (int i = 0; rc == 0 && i < m->o->max_moves && stayed > m->o->unmoved && !m->w->stopped[0];
         i++) {
        rc = sweep(m, err);
        if (m->tried > 0)
            stayed = pow(1 - (double)m->accepted / (double)m->tried, i + 1);
    }
    return rc;
}

/* Members that draws did not give: copies of those that are there, as many as the budget pays a
 * move or two and the look for, are moved at the first tolerance. Where the budget ends on the way,
 * copies that have not moved go. */
static int grow(smc *m, kh_err *err) {
    int have = m->now.n, n = m->o->samples;
    while (n > have && kh_monitor_room(m->w, 2LL * (n - have) * m->s->cost, n) < n)
        n--;
    m->n_moving = 0;
    for (int i = have; i < n; i++) {
        kh_population_put(&m->now, i, &m->now, (i - have) % have);
        m->moving[m->n_moving++] = i;
    }
    m->now.n = n;
    long drawn = m->tried;
    int rc = n > have ? move(m, err) : 0, kept = have;
    for (int i = have; i < n && rc == 0; i++)
        if (m->moved[i] || !m->w->stopped[0])
            kh_population_put(&m->now, kept++, &m->now, i);
    m->now.n = rc == 0 ? kept : n;
    m->tried += n > have ? drawn : 0;
    return rc;
}

/* Soft acceptance begins at power 0, which is the prior itself: every draw is a member. */
static int start(smc *m, kh_err *err) {
    bool soft = m->o->accept == KH_SMC_SOFT;
    int rc = soft ? 0 : first_tolerance(m, err);
    if (rc == 0 && !m->w->stopped[0])
        rc = fill(m, m->o->samples, soft, err);
    if (rc == 0 && !m->w->stopped[0] && m->now.n < m->o->samples)
        rc = grow(m, err);
    m->ess = m->now.n;
    return rc;
}

/* ------------------------------------------------------------------------------------- the run */

static bool is_last(const smc *m) {
    return m->level == m->o->levels ||
        (m->o->accept == KH_SMC_SOFT ? m->power >= 1 : m->eps <= m->o->tolerance);
}

static int report(smc *m, kh_err *err) {
    kh_population *p = &m->now;
    char facts[256], target[40];
    double sum = 0, moves = 0;
    int best = p->errors[0];
    for (int i = 0; i < p->n; i++) {
        p->weight[i] = 1.0 / p->n;
        sum += p->errors[i];
        moves += p->moves[i];
        best = p->errors[i] < best ? p->errors[i] : best;
    }
    p->tolerance = m->eps;
    p->rate = m->o->accept == KH_SMC_SOFT ? m->power * m->rate : 0;
    if (m->o->accept == KH_SMC_SOFT)
        snprintf(target, sizeof target, "power=%.4f", m->power);
    else
        snprintf(target, sizeof target, "eps=%d", m->eps);
    snprintf(facts, sizeof facts,
        "%s accepted=%ld tried=%ld rate=%.4f step=%.4f ess=%.1f ancestors=%d moves=%.2f "
        "errors=%d/%.2f saved=%lld%s",
        target, m->accepted, m->tried, m->tried ? (double)m->accepted / (double)m->tried : 0, m->b,
        m->ess, kh_population_ancestors(p), moves / p->n, best, sum / p->n, m->s->saved,
        m->taken_back ? " taken-back=1" : "");
    return kh_monitor_done(m->w, p, &(kh_level_done){ m->level, m->level, 0, facts },
        is_last(m) || m->w->stopped[0], err);
}

static bool too_few_accepted(const smc *m) {
    return m->level > 0 && m->tried > 0 && (double)m->accepted < m->o->min_rate * (double)m->tried;
}

/* Why the run ends by itself, if it does. */
static void reason(smc *m) {
    if (m->o->accept == KH_SMC_SOFT && m->power >= 1)
        kh_monitor_stop(m->w, "the likelihood counts in full");
    else if (m->o->accept == KH_SMC_HARD && m->eps <= m->o->tolerance)
        kh_monitor_stop(m->w, "the tolerance of %d errors is reached", m->eps);
    else if (m->level >= m->o->levels)
        kh_monitor_stop(m->w, "all %d levels are done", m->o->levels);
    else if (too_few_accepted(m))
        kh_monitor_stop(m->w, "only %ld of %ld moves were accepted, less than --min-rate %g",
            m->accepted, m->tried, m->o->min_rate);
}

static int select_members(smc *m) {
    if (m->o->accept == KH_SMC_SOFT) {
        raise_power(m);
        learn_directions(m);
        return 0;
    }
    bool lower = lower_tolerance(m);
    if (!lower && m->retries >= RETRIES)
        return -1;
    m->retries = lower ? 0 : m->retries + 1;
    replace(m);
    learn_directions(m);
    return 0;
}

/* The run ends, by a budget or for want of acceptance, with copies that have mostly not moved: the
 * population that they were made from is what is worth keeping. */
static bool is_unfinished(const smc *m) {
    int moved = 0;
    for (int i = 0; i < m->n_moving; i++)
        moved += m->moved[m->moving[i]];
    return (m->w->stopped[0] || (!is_last(m) && too_few_accepted(m))) && 2 * moved < m->n_moving;
}

static int one_level(smc *m, kh_err *err) {
    int eps = m->eps;
    double power = m->power, ess = m->ess;
    m->level++;
    if (select_members(m) != 0) {
        kh_monitor_stop(m->w, "no member got below %d errors in %d levels", m->eps, RETRIES);
        return 0;
    }
    int rc = move(m, err);
    m->taken_back = rc == 0 && is_unfinished(m);
    if (m->taken_back) {
        kh_population_copy(&m->now, &m->before);
        m->eps = eps;
        m->power = power;
        m->ess = ess;
    }
    return rc == 0 ? report(m, err) : rc;
}

static int run(kh_population *out, kh_simulator *s, const void *opts, uint64_t seed, kh_monitor *w,
    kh_err *err) {
    kh_smc_opts o = *(const kh_smc_opts *)opts;
    o.samples = kh_smc_members(&o, 0, s->cost);
    smc m;
    int rc = smc_new(&m, &o, s, seed, w, err);
    if (rc == 0)
        rc = start(&m, err);
    if (rc == 0)
        rc = report(&m, err);
    for (reason(&m); rc == 0 && !w->stopped[0]; reason(&m))
        rc = one_level(&m, err);
    if (rc == 0) {
        *out = m.now;
        m.now = (kh_population){ 0 };
    }
    smc_free(&m);
    return rc;
}

static void fit(void *opts, long long budget, int cost) {
    kh_smc_opts *o = opts;
    o->samples = kh_smc_members(o, budget, cost);
}

const kh_sampler kh_sampler_smc = {
    .name = "smc",
    .summary = "sequential Monte Carlo with moves that keep to the prior; works in many dimensions",
    .opts = toy_table,
    .opts_size = sizeof(kh_smc_opts),
    .fit = fit,
    .steps = true,
    .run = run,
};

long long kh_smc_least(const kh_tuning *t, const void *opts) {
    return kh_labels_least(t, kh_smc_members(opts, t->o->max_queries, t->train->n_row));
}

/* hard: the tolerance falls by one at least, after as many levels without that as are allowed. */
void kh_smc_most(const kh_tuning *t, const void *opts, kh_plan *plan) {
    const kh_smc_opts *o = opts;
    int n = kh_smc_members(o, t->o->max_queries, t->train->n_row),
        levels = (t->train->n_row + 1) * (RETRIES + 1);
    bool soft = o->accept == KH_SMC_SOFT;
    double first = soft ? n : o->first_draws + (double)n * MAX_MISSES * BATCH;
    levels = soft || o->levels < levels ? o->levels : levels;
    kh_labels_most(t, &o->labels, first + (double)levels * n * o->max_moves, levels + 1, n, plan);
}

/* The paper has no such method, but plain votes and one width of the prior. */
static void exact(void *opts) {
    kh_labels_opts *o = &((kh_smc_opts *)opts)->labels;
    o->prior_spread = 0;
}

const kh_method kh_method_smc = {
    .name = "smc",
    .summary = "labels only: sequential Monte Carlo that works in many dimensions; recommended",
    .access = KH_ACCESS_LABELS,
    .soft = true,
    .holds = true,
    .opts = smc_table,
    .opts_size = sizeof(kh_smc_opts),
    .exact = exact,
    .least = kh_smc_least,
    .most = kh_smc_most,
    .sampler = &kh_sampler_smc,
};
