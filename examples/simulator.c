/* simulator.c - likelihood-free inference on a simulator of one's own: the two-moons benchmark.
 *
 *     cc simulator.c $(pkg-config --cflags --libs keyhole) -lm -o simulator
 *     ./simulator smc
 *
 * theta is uniform on [-1, 1]^2; an observation is a point on a noisy half circle, moved by theta
 * (Greenberg, Nonnenmacher and Macke 2019). Given the observation (0, 0) the posterior is two
 * crescents, mirror images of each other in the line theta_1 = -theta_2. */
#include <keyhole.h>
#include <math.h>
#include <stdio.h>

static double phi(double x) { return erfc(-x / sqrt(2)) / 2; } /* normal -> uniform on (0, 1) */
static double theta(const float *z, int k) { return 2 * phi((double)z[k]) - 1; }

static int two_moons(void *user, const float *z, const double *noise, float *x, kh_err *err) {
    (void)user, (void)err;
    double angle = acos(-1) * (phi(noise[0]) - 0.5), r = 0.1 + 0.01 * noise[1];
    double a = theta(z, 0), b = theta(z, 1);
    x[0] = (float)(r * cos(angle) + 0.25 - fabs(a + b) / sqrt(2));
    x[1] = (float)(r * sin(angle) + (b - a) / sqrt(2));
    return 0;
}

int main(int argc, char **argv) {
    const char *sampler = argc > 1 ? argv[1] : "smc";
    float observed[2] = { 0, 0 };
    kh_problem moons = {
        .dim = 2, .simulate = two_moons, .n_obs = 2, .n_noise = 2, .observed = observed
    };
    kh_samples s;
    kh_err err;
    if (kh_sample(
            &s, sampler, NULL, &moons, 1, &(kh_sample_opts){ .max_simulations = 200000 }, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    double upper = 0, along = 0, across = 0;
    for (int i = 0; i < s.n; i++) {
        double a = theta(s.z + 2 * i, 0), b = theta(s.z + 2 * i, 1);
        upper += s.weight[i] * (a + b > 0);
        along += s.weight[i] * fabs(a + b) / sqrt(2);
        across += s.weight[i] * (b - a) / sqrt(2);
    }
    printf("%s: %d samples, %lld simulations, distance at most %.4f\n", sampler, s.n, s.simulations,
        s.distance);
    printf("upper crescent %.2f (exactly 0.50), |a + b| / sqrt 2 %.3f (about 0.314), "
           "(b - a) / sqrt 2 %.3f (exactly 0)\n",
        upper, along, across);
    kh_samples_free(&s);
    return 0;
}
