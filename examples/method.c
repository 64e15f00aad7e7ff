/* method.c - the whole method: open a box, split the data, tune, judge, predict.
 *
 *     cc method.c $(pkg-config --cflags --libs keyhole) -o method
 *     ./method builtin examples/reviews "a gorgeous film"
 */
#include <keyhole.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    const char *model = argc > 1 ? argv[1] : "builtin";
    const char *data = argc > 2 ? argv[2] : "examples/reviews";
    const char *text = argc > 3 ? argv[3] : "a gorgeous film", *run = "method-run";
    const kh_task *task = NULL;
    kh_split rows = { 0 };
    kh_plm *box = NULL;
    kh_posterior *posterior = NULL;
    kh_eval *evaluation = NULL;
    kh_classifier *classifier = NULL;
    kh_classified said;
    kh_row row = { .a = text, .n_a = strlen(text), .label = -1 };
    kh_plm_opts access = { .access = KH_ACCESS_LABELS };
    kh_tune_opts o = kh_tune_defaults();
    kh_eval_opts judge = kh_eval_defaults();
    kh_err err;
    o.seed = 13, o.space.dim = 50, o.space.slots = 10, o.max_queries = 8000;
    o.data = judge.data = data, judge.rows = 100;

    int rc = kh_task_open(&task, data, &err) ||
        kh_split_open(&rows, data, 0, 0, &(kh_dataset_opts){ .task = task }, &err) ||
        kh_plm_open(&box, model, &access, &err) ||
        kh_tune(&posterior, "smc", NULL, box, task, rows.train, rows.dev, &o, &err) ||
        kh_posterior_save(posterior, run, &err) ||
        kh_eval_new(&evaluation, posterior, box, &judge, &err) ||
        kh_eval_save(evaluation, run, NULL, &err) ||
        kh_classifier_open(&classifier, run, box, &err) ||
        kh_classifier_run(classifier, &row, 1, &said, NULL, NULL, &err);
    if (rc)
        fprintf(stderr, "%s\n", err.msg);
    else {
        kh_eval_info e = kh_eval_describe(evaluation);
        printf("accuracy %.3f, calibration error %.3f\n", e.value.accuracy, e.value.ece);
        printf("\"%s\": %s, %.2f%s%s\n", text, task->label[said.label].name, said.confidence,
            said.abstain ? ", abstain" : "",
            said.out_of_distribution ? ", not my kind of text" : "");
    }
    kh_classifier_close(classifier), kh_eval_free(evaluation), kh_posterior_free(posterior);
    kh_plm_close(box), kh_split_close(&rows), kh_task_close(task);
    return rc != 0;
}
