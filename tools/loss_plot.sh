#!/bin/sh
# loss_plot.sh FOLDER > plot.svg - the plot in the card of the built-in model: held-out masked loss and the probes against the tokens read,
# of both stages (FOLDER/stage1.tsv, then FOLDER/log.tsv) and of the recipe of 0.1 (FOLDER/log-0.1.tsv). Needs gnuplot.
set -eu
dir=$1
# Stage two goes on where stage one stopped: its tokens are counted from there.
first=$(tail -n 1 "$dir/stage1.tsv" | cut -f 2)
gnuplot <<PLOT
set terminal svg size 900,380 font 'sans-serif,11'
set multiplot layout 1,2
set grid lc rgb '#dddddd'
set border 3
set tics nomirror
set xlabel 'million tokens read'
set key top right
set title 'masked loss on held-out text'
plot '$dir/log-0.1.tsv' every ::1 using (\$2/1e6):5 with lines lw 1.5 lc rgb '#888888' title '0.1', \
     '$dir/stage1.tsv' every ::1 using (\$2/1e6):5 with lines lw 2 lc rgb '#1f6fb4' title 'stage one', \
     '$dir/log.tsv' every ::1 using ((\$2+$first)/1e6):5 with lines lw 2 lc rgb '#d1622b' title 'stage two'
set title 'accuracy of the template alone on 200 test rows (no label prior)'
set yrange [0:1]
set key below maxcols 3
plot '$dir/log-0.1.tsv' every ::1 using (\$2/1e6):7 with lines lw 1.5 lc rgb '#888888' title 'sst2, 0.1', \
     '$dir/log-0.1.tsv' every ::1 using (\$2/1e6):8 with lines dt 2 lw 1.5 lc rgb '#888888' title 'agnews, 0.1', \
     '$dir/stage1.tsv' every ::1 using (\$2/1e6):7 with lines lw 2 lc rgb '#1f6fb4' title 'sst2, stage one', \
     '$dir/stage1.tsv' every ::1 using (\$2/1e6):8 with lines dt 2 lw 2 lc rgb '#1f6fb4' title 'agnews, stage one', \
     '$dir/log.tsv' every ::1 using ((\$2+$first)/1e6):7 with lines lw 2 lc rgb '#d1622b' title 'sst2, stage two', \
     '$dir/log.tsv' every ::1 using ((\$2+$first)/1e6):8 with lines dt 2 lw 2 lc rgb '#d1622b' title 'agnews, stage two'
PLOT
