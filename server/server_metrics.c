/* server_metrics.c - what /metrics tells, in the text format of Prometheus. Counters only grow; the
 * rest are gauges. */
#include "server/server_parts.h"
#include "base/clock.h"

static const double BUCKETS[] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30 };
enum { N_BUCKET = sizeof BUCKETS / sizeof BUCKETS[0] };

void kh_metrics_observe(kh_server *s, int status, double seconds) {
    int i = 0;
    atomic_fetch_add(&s->count.requests[status / 100 < 6 ? status / 100 : 0], 1);
    while (i < N_BUCKET && seconds > BUCKETS[i])
        i++;
    atomic_fetch_add(&s->count.seconds_bucket[i], 1);
    atomic_fetch_add(&s->count.seconds_count, 1);
    atomic_fetch_add(&s->count.microseconds, (long long)(seconds * 1e6));
}

static void put(
    kh_buf *out, const char *name, const char *type, const char *help, long long value) {
    kh_buf_printf(out, "# HELP keyhole_%s %s\n# TYPE keyhole_%s %s\nkeyhole_%s %lld\n", name, help,
        name, type, name, value);
}

void kh_metrics_put(kh_server *s, kh_buf *out) {
    kh_counters *c = &s->count;
    kh_buf_text(out,
        "# HELP keyhole_requests_total Requests answered, by the first digit of the status.\n"
        "# TYPE keyhole_requests_total counter\n");
    for (int i = 1; i < 6; i++)
        kh_buf_printf(out, "keyhole_requests_total{status=\"%dxx\"} %lld\n", i,
            (long long)atomic_load(&c->requests[i]));
    put(out, "queries_total", "counter", "Pairs of prompt and row that the model answered.",
        atomic_load(&c->queries));
    put(out, "prompts_total", "counter", "Prompts asked about.", atomic_load(&c->prompts));
    put(out, "batches_total", "counter", "Calls of the model.", atomic_load(&c->batches));
    put(out, "batched_requests_total", "counter", "Requests answered by those calls.",
        atomic_load(&c->batched));
    put(out, "received_bytes_total", "counter", "Bytes of request bodies.",
        atomic_load(&c->received));
    put(out, "refused_total", "counter", "Requests answered 429.", atomic_load(&c->refused));
    put(out, "timeouts_total", "counter", "Connections ended because they took too long.",
        atomic_load(&c->timeouts));
    put(out, "connections", "gauge", "Connections open.", atomic_load(&c->connections));
    put(out, "queue_length", "gauge", "Requests that wait for the model.",
        kh_queue_length(&s->asking));
    put(out, "body_bytes", "gauge", "Bytes that requests under way are charged for.",
        (long long)atomic_load(&s->bytes));
    put(out, "uptime_seconds", "gauge", "Since the start.", (long long)(kh_clock() - s->started));
    kh_buf_text(out,
        "# HELP keyhole_request_seconds From the head of a request to its answer.\n"
        "# TYPE keyhole_request_seconds histogram\n");
    long long below = 0;
    for (int i = 0; i < N_BUCKET; i++) {
        below += atomic_load(&c->seconds_bucket[i]);
        kh_buf_printf(out, "keyhole_request_seconds_bucket{le=\"%g\"} %lld\n", BUCKETS[i], below);
    }
    long long n = atomic_load(&c->seconds_count);
    kh_buf_printf(out,
        "keyhole_request_seconds_bucket{le=\"+Inf\"} %lld\nkeyhole_request_seconds_sum "
        "%.6f\nkeyhole_request_seconds_count %lld\n",
        n, (double)atomic_load(&c->microseconds) * 1e-6, n);
}
