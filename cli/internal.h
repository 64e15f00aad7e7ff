/* internal.h - what the program takes from inside the library beside the public header, and why.
 *
 * The command line is the library's first user: what a command does goes through keyhole.h where
 * that has it. The rest is listed here; tools/check_tree.sh refuses an include of cli/ that is not.
 * A header leaves this list when the public one can do its work. Nothing includes this file.
 *
 * -- tools of every C file; a public copy would only be a second name --
 * base/alloc.h         memory that tests can make fail
 * base/buf.h           growable text for output
 * base/clock.h         progress and benchmarks
 * base/controls.h      texts of rows on terminals
 * base/err.h           sentences of errors, with the file and the place
 * base/file.h          paths, whole files, folders
 * base/hooks.h         log lines through the caller's hooks
 * base/json.h          JSON in and out
 * base/json_out.h      JSON out
 * base/opts.h          tables of options: parser, help, man page and completion come from them
 * base/place.h         where the built-in model is
 * base/portable.h      where the program is, cores
 * base/rng.h           benchmarks and drawn rows
 * base/utf8.h          tokenize --json shows pieces
 *
 * -- commands that show the inside, which a program would not --
 * data/dataset.h       data check: every problem of a file, not the first
 * data/folder.h        data split, data stats: what files a folder has
 * data/label_names.h   task show: names as data files write them
 * data/chat.h          tune --chat: the template of a decoder's own chat format
 * data/stats.h         data stats
 * data/task.h          task show --json
 * text/pieces.h        tokenize: pieces with their places
 * text/tokenizer.h     tokenize: names of the parts
 * text/bpe_train.h     tokenizer train: its statistics
 * model/config.h       model random, pretrain: sizes of a fresh model
 * model/engine.h       fill-mask, next, features, bench engine: the engine itself
 * model/kernels.h      --version --json: rows that this CPU can run
 * model/model.h        inspect: tensors
 * model/random_model.h model random, bench: random weights
 * model/weights.h      inspect: the table of tensors
 * train/adamw.h        bench train
 * train/convert.h      model convert
 * train/corpus.h       pretrain
 * train/gradient.h     bench train
 * train/pretrain.h     pretrain
 * train/prune_model.h  model prune
 *
 * -- what the public header has in part --
 * judge/calibrate.h    calibrate: kinds of calibration by their names
 * judge/decisions.h    eval, predict: names of scores, the tables of decisions
 * judge/leave_one_out.h  tune FILE: answers that a row itself did not calibrate
 * judge/predictions.h  metrics: files of predictions
 * plm/http.h           options of a service, as rows of a table
 * plm/hub.h            pull
 * posterior/eval.h     eval: every number of an evaluation, for tables
 * posterior/posterior.h  export, inspect: fields that kh_posterior_info has not
 * posterior/prediction.h  predict: the record of a prediction
 * prompt/subspace.h    tune: options of the space, as rows of a table
 * report/compare.h     compare
 * report/grid.h        tables in five formats
 * report/text_plot.h   the plot in letters of the demo
 * report/page.h        eval: report.html
 * report/results.h     eval, compare: results.json
 * reproduce/reproduction.h  reproduce
 * run/journal.h        log, runs
 * run/run.h            log, runs
 * tune/cmaes.h         bench cmaes: options as rows of a table
 * tune/effort.h        tune: names of efforts, for options and forecasts
 * tune/method.h        tune: options of methods as rows of a table, parsed with the others
 * tune/simulator.h     reproduce --dry-run: how many samples a sampler will choose
 * tune/toys.h          bench sbi
 */
