#!/bin/bash
# analyze.sh FILE.c... - cppcheck, then clang-tidy with the checks of .clang-tidy. Ends in "no findings", or fails. CPPFLAGS: as the
# files are compiled, so that what needs libcurl and libmicrohttpd is looked at, too.
#
# What cppcheck may keep for itself:
#   invalidPointerCast      kernels_body.h keeps f32 and packed bf16/int8 words in one block of scratch, on purpose
#   funcArgOrderDifferent   headers leave out names that say nothing, which it takes for another order
#   invalidFunctionArg      log(0) of an empty sum: callers have at least two labels
#   internalAstError        it cannot parse (kh_field){ 0 } inside ?:
#   uninitvar               calibrate.c: a[at] was written by the loop before, over the same steps
status=0
nice cppcheck --std=c17 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 --quiet -j2 \
    --suppress=invalidPointerCast:src/model/kernels_body.h --suppress=funcArgOrderDifferent --suppress=invalidFunctionArg \
    --suppress=internalAstError --suppress=uninitvar:src/judge/calibrate.c \
    -D__x86_64__ $CPPFLAGS "$@" || status=1
printf '%s\n' "$@" | nice xargs -P2 -n4 sh -c 'clang-tidy --quiet "$@" -- -std=c17 -fopenmp $CPPFLAGS 2>/dev/null' tidy || status=1
[ $status -eq 0 ] && echo "no findings"
exit $status
