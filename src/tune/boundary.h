/* boundary.h - a smooth map of the real line onto an interval, so that an optimiser without bounds
 * obeys bounds.
 *
 * With margins al = min((hi - lo) / 2, (1 + |lo|) / 20) and au, alike, of hi, the map is the
 * identity on [lo + al, hi - au]; a parabola with matching slope takes [lo - al, lo + al] onto [lo,
 * lo + al], and its mirror image does the same at hi; beyond lo - al and hi + au everything
 * repeats, mirrored. The map is continuously differentiable, and onto: an optimum on the bound
 * itself is found at lo - al. Either bound may be infinite. (doc/methods.md, eq. C14.) */
#ifndef KH_TUNE_BOUNDARY_H
#define KH_TUNE_BOUNDARY_H

/* The point of [lo, hi] that g stands for; lo < hi. */
double kh_boundary_map(double g, double lo, double hi);
/* The g in [lo - al, hi + au] that stands for x; lo <= x <= hi. */
double kh_boundary_inverse(double x, double lo, double hi);

#endif
