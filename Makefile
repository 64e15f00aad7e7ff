# keyhole. `make help` lists what can be made. Rooms stand in the order in which data flows (README, "Source tour").

VERSION  := $(shell sed -n 's/^\#define KH_VERSION "\(.*\)"/\1/p' include/keyhole.h)
PREFIX   ?= /usr/local
CC       ?= gcc
ifeq ($(origin CC),default)
CC       := gcc
endif
BUILD    ?= build
MODE     ?= release
# What is built for: of the compiler, which may be one for another machine.
ARCH     := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
PKG_CONFIG ?= pkg-config

# ---- what the build needs, by Debian package name -----------------------------------------------------------------
# make, make test and make demo install what is missing (tools/setup.sh); nothing else is ever downloaded.
PACKAGES := gcc libc6-dev pkg-config libjansson-dev libutf8proc-dev libpcre2-dev libxxhash-dev libsqlite3-dev libcmocka-dev libopenblas-dev liblapacke-dev
PKGS     := jansson libpcre2-8 sqlite3
# Found at build time; without one of them the rest works, and the commands that need it say what is missing.
OPTIONAL := libcurl4-openssl-dev libmicrohttpd-dev libopenmpi-dev openmpi-bin
WITH     := $(shell $(PKG_CONFIG) --exists libcurl && echo CURL) $(shell $(PKG_CONFIG) --exists libmicrohttpd && echo MHD)
# AMX's kernels, if the compiler knows the instructions and can ask the CPU for them.
AMX      := -mamx-tile -mamx-int8
AMX_TEST := int main(void) { return __builtin_cpu_supports("amx-int8"); }
WITH     += $(if $(filter x86_64,$(ARCH)),$(shell echo '$(AMX_TEST)' | $(CC) $(AMX) -xc -o /dev/null - 2>/dev/null && echo AMX))
PKGS     += $(if $(filter CURL,$(WITH)),libcurl)
MPICC    ?= $(shell command -v mpicc)
SERVER_PKGS := $(if $(filter MHD,$(WITH)),libmicrohttpd)

# ---- flags -----------------------------------------------------------------------------------------------------------
WARN     := -Wall -Wextra -Wshadow -Wconversion -Werror
# No -ffast-math: results are log-probabilities, infinities and NaN checks. No contraction: bits must not depend on the compiler.
CFLAGS_release := -O2 -D_FORTIFY_SOURCE=3 -fstack-protector-strong
CFLAGS_asan    := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
CFLAGS_tsan    := -O1 -fsanitize=thread -w
CFLAGS_coverage := -O0 --coverage -fprofile-update=atomic
CFLAGS_fuzz    := -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
CPPFLAGS += -D_GNU_SOURCE -Iinclude -Isrc -I. $(WITH:%=-DKH_WITH_%)
# ThreadSanitizer does not know how gcc's OpenMP waits, and would see races everywhere: loops run in one thread there.
OPENMP   := $(if $(filter tsan,$(MODE)),,-fopenmp)
KH_CFLAGS = -std=c17 -g -fPIC $(OPENMP) -ffp-contract=off -fvisibility=hidden $(WARN) $(CFLAGS_$(MODE)) $(CFLAGS) -MMD -MP
KH_LDFLAGS = $(OPENMP) $(filter -fsanitize% --coverage,$(CFLAGS_$(MODE))) -Wl,-z,relro,-z,now $(LDFLAGS)
LIBS      = $(shell $(PKG_CONFIG) --libs $(PKGS) 2>/dev/null) -lutf8proc -lopenblas -lm -ldl $(if $(OPENMP),,-lgomp)

# ---- the rooms, in the order of the flow -----------------------------------------------------------------------------
ROOMS    := base text data model train plm prompt judge posterior run tune report reproduce
OUT      := $(BUILD)/$(MODE)
SRC      := $(foreach room,$(ROOMS),$(sort $(wildcard src/$(room)/*.c)))
CLI_SRC  := $(sort $(wildcard cli/*.c)) $(sort $(wildcard server/*.c))
OBJ      := $(SRC:%.c=$(OUT)/%.o)
CLI_OBJ  := $(CLI_SRC:%.c=$(OUT)/%.o)
# MPI's part is a plugin, loaded by ranks only (doc/decisions.md).
MPI_PLUGIN := $(if $(MPICC),$(OUT)/keyhole-mpi.so)
SERVER_OBJ := $(filter $(OUT)/server/%,$(CLI_OBJ))
SERVER_LIBS = $(if $(SERVER_PKGS),$(shell $(PKG_CONFIG) --libs $(SERVER_PKGS))) -lpthread
TESTS    := $(patsubst tests/%.c,$(OUT)/tests/%,$(sort $(wildcard tests/test_*.c)))
CLI_TESTS := $(sort $(wildcard tests/cli_*.sh)) $(sort $(wildcard tests/mpi_*.sh))
SLOW_TESTS := $(patsubst tests/%.c,$(OUT)/tests/%,$(sort $(wildcard tests/slow_*.c))) $(sort $(wildcard tests/slow_*.sh))
FUZZERS  := $(patsubst fuzz/%.c,$(BUILD)/fuzz/fuzz/%,$(sort $(wildcard fuzz/fuzz_*.c)))

.PHONY: all setup test test-mpi test-slow test-oom soak asan tsan valgrind coverage analyze fuzz bench bench-peers demo builtin install uninstall clean help
# One short line a file; V=1 shows the commands.
Q := $(if $(V),,@)
say = @printf '  %-5s %s\n' $1 $2

.DELETE_ON_ERROR:
.SECONDARY:

all: setup
	@$(MAKE) -s --no-print-directory $(OUT)/keyhole $(OUT)/libkeyhole.so $(MPI_PLUGIN) $(OUT)/keyhole.1 $(COMPLETIONS)

help:
	@echo 'make              build the program and the libraries (missing Debian packages are installed first)'
	@echo 'make demo         built-in model, built-in data: tune, judge, report in a minute or two'
	@echo 'make test         all quick tests; make test T=text runs those whose name holds "text"'
	@echo 'make test-mpi     those of several ranks alone'
	@echo 'make test-arm64   the quick tests on 64-bit ARM, cross-built and run by an emulator'
	@echo 'make test-portable  what other Unix systems than Linux would take, on Linux'
	@echo 'make test-slow    comparisons with other implementations that need more packages or time'
	@echo 'make test-oom     whole jobs again and again, in which every allocation fails in turn; MODE=asan sees leaks, too'
	@echo 'make soak         the server under good and hostile traffic for SECONDS=3600'
	@echo 'make asan         all quick tests under AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make tsan         those that have threads, under ThreadSanitizer'
	@echo 'make valgrind     some tests under valgrind; T=word chooses'
	@echo 'make coverage     branches of src/ that the quick tests take'
	@echo 'make analyze      cppcheck and clang-tidy'
	@echo 'make fuzz         every fuzz target for SECONDS=60 each (clang); make fuzz F=vocab one of them'
	@echo 'make bench        speed of the engine and of CMA-ES'
	@echo 'make bench-peers  the engine beside PyTorch and ONNX Runtime, as ratios, kept in bench/peers.csv'
	@echo 'make builtin      make the built-in model again from the texts in CORPUS=$(CORPUS); hours, and it can be stopped at any time'
	@echo 'make install      PREFIX=$(PREFIX): program, libraries, header, pkg-config file, man page, completion, models'
	@echo 'make wheel        the Python package with library and model, for pip; make dist: a tarball; make deb: Debian packages'
	@echo 'make dist-arm64   a tarball for 64-bit ARM; make wheel-arm64: the Python package'
	@echo 'make doc          README, doc/ and the header as a site with a search box, in $(BUILD)/site'
	@echo 'make clean        remove $(BUILD)'
	@echo 'CC=clang, MODE=release|asan and BUILD=folder may be given to all of them'

setup:
	@tools/setup.sh $(PACKAGES) $(if $(findstring clang,$(CC)),clang libomp-dev)
	@tools/setup.sh $(OPTIONAL) || echo 'setup: going on without them' >&2

# ---- library, program ------------------------------------------------------------------------------------------------
$(OUT)/libkeyhole.a: $(OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(OUT)/libkeyhole.so: $(OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) -shared -Wl,-soname,libkeyhole.so.0 $(KH_LDFLAGS) -o $@ $^ $(LIBS)

$(OUT)/keyhole: $(CLI_OBJ) $(OUT)/libkeyhole.a
	$(call say,LINK,$@)
	$(Q)$(CC) -pie $(KH_LDFLAGS) -o $@ $^ $(SERVER_LIBS) $(LIBS)

$(OUT)/keyhole-mpi.so: src/mpi/port.c src/plm/ranks.h include/keyhole.h
	@mkdir -p $(@D)
	$(call say,MPICC,$@)
	$(Q)OMPI_CC=$(CC) MPICH_CC=$(CC) $(MPICC) $(CPPFLAGS) -std=c17 -g -O2 -fPIC -fvisibility=hidden $(WARN) -shared -Wl,-z,relro,-z,now -o $@ $<

$(OUT)/keyhole.1: $(OUT)/keyhole
	$(Q)$< help --man > $@

COMPLETIONS := $(OUT)/keyhole.bash $(OUT)/keyhole.zsh $(OUT)/keyhole.fish
$(COMPLETIONS): $(OUT)/keyhole.%: $(OUT)/keyhole
	$(Q)$< help --$*-completion > $@

$(OUT)/cli/%.o: cli/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CPPFLAGS) -Icli $(KH_CFLAGS) -c -o $@ $<

$(OUT)/tests/%.o: tests/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CPPFLAGS) -Itests $(KH_CFLAGS) -c -o $@ $<

# The kernels: one file per instruction set, chosen at run time. Contraction into FMA is theirs to use (doc/decisions.md); without
# errno a square root is one instruction.
$(OUT)/src/model/kernels_%.o: KH_CFLAGS += -O3 -ffp-contract=fast -fno-math-errno
ifeq ($(ARCH),x86_64)
$(OUT)/src/model/kernels_avx2.o: KH_CFLAGS += -mavx2 -mfma
VNNI     := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mprefer-vector-width=512
AVX512   := $(VNNI) -mavx512bf16
$(OUT)/src/model/kernels_avx512_vnni.o: KH_CFLAGS += $(VNNI)
$(OUT)/src/model/kernels_avx512.o: KH_CFLAGS += $(AVX512)
$(OUT)/src/model/kernels_amx.o: KH_CFLAGS += $(AVX512) $(if $(filter AMX,$(WITH)),$(AMX))
endif
ifeq ($(ARCH),aarch64)
$(OUT)/src/model/kernels_neon_dot.o: KH_CFLAGS += -march=armv8.2-a+dotprod
$(OUT)/src/model/kernels_neon_i8mm.o: KH_CFLAGS += -march=armv8.2-a+dotprod+i8mm+bf16
# gcc 12 fails inside its vectoriser on a loop of test_tune_descent.c; tests need none.
$(OUT)/tests/%.o: KH_CFLAGS += -fno-tree-vectorize
endif

$(OUT)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CPPFLAGS) $(KH_CFLAGS) -c -o $@ $<

# The server's page and the paper's numbers go into the program, line by line as C strings.
as_string = $(Q)mkdir -p $(@D) && sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&\\n"/' $< > $@
$(OUT)/server/page.inc: server/page.html
	$(as_string)
$(OUT)/src/reproduce/paper_tables.inc: src/reproduce/paper_tables.json
	$(as_string)
$(OUT)/src/reproduce/published.o: $(OUT)/src/reproduce/paper_tables.inc
$(OUT)/src/reproduce/published.o: CPPFLAGS += -I$(OUT)/src/reproduce
$(OUT)/server/classify.o: $(OUT)/server/page.inc
$(OUT)/server/classify.o: CPPFLAGS += -I$(OUT)

# Tests of the server link it.
SERVER_TESTS := $(filter $(OUT)/tests/test_server% $(OUT)/tests/test_oom,$(TESTS))
$(SERVER_TESTS): $(SERVER_OBJ)
$(SERVER_TESTS): EXTRA = $(SERVER_OBJ) $(SERVER_LIBS)

# One test is all fuzz targets without the fuzzer, each under the name of its file.
FUZZ_OBJ := $(patsubst fuzz/%.c,$(OUT)/fuzz/%.o,$(sort $(wildcard fuzz/fuzz_*.c)))
ifneq ($(MODE),fuzz)
$(FUZZ_OBJ): CPPFLAGS += -DLLVMFuzzerTestOneInput=$(basename $(notdir $@))
endif
$(OUT)/tests/test_fuzz: $(FUZZ_OBJ) $(OUT)/fuzz/mutators.o $(SERVER_OBJ)
$(OUT)/tests/test_fuzz: EXTRA = $(FUZZ_OBJ) $(OUT)/fuzz/mutators.o $(SERVER_OBJ) $(SERVER_LIBS)

# ---- tests -------------------------------------------------------------------------------------------------------------
$(TESTS) $(filter $(OUT)/%,$(SLOW_TESTS)): %: %.o $(OUT)/libkeyhole.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(KH_LDFLAGS) -o $@ $< $(EXTRA) $(OUT)/libkeyhole.a -lcmocka $(LIBS)

# $(call chosen,WORD,LIST): all of the list, or, if there is a word, those whose name holds it.
chosen = $(if $1,$(foreach t,$2,$(if $(findstring $1,$(notdir $t)),$t)),$2)

# tests/run.sh prints one line a test and ends in "N passed, N failed, N skipped".
test: setup
	@$(MAKE) -s --no-print-directory $(OUT)/keyhole $(OUT)/libkeyhole.so $(MPI_PLUGIN) $(call chosen,$(T),$(TESTS))
	@KEYHOLE=$(OUT)/keyhole tests/run.sh $(call chosen,$(T),$(TESTS) $(CLI_TESTS))

# Several ranks on this machine; skipped, with the reason, where there is no mpirun.
test-mpi: setup
	@$(MAKE) -s --no-print-directory $(OUT)/keyhole $(MPI_PLUGIN) $(OUT)/tests/test_plm_ranks
	@KEYHOLE=$(OUT)/keyhole tests/run.sh $(OUT)/tests/test_plm_ranks $(sort $(wildcard tests/mpi_*.sh))

# The quick tests on 64-bit ARM, by an emulator: cross-built with Debian's compiler and libraries.
ARM64_PACKAGES := $(addsuffix :arm64,$(filter lib%-dev,$(filter-out libc6-dev libopenmpi-dev,$(PACKAGES) $(OPTIONAL))) libgomp1)
# In a folder beside BUILD, so that the program finds its tree as others do; CC, RUNNER and KEYHOLE_PATIENCE (seconds) are for the scripts.
ARM64 := $(BUILD)-arm64
EMULATOR = $(shell command -v qemu-aarch64) -cpu max
ARM64_MAKE = PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig $(MAKE) -s --no-print-directory \
    CC=aarch64-linux-gnu-gcc BUILD=$(ARM64) MPICC= LAPACK=
setup-arm64:
	@dpkg --print-foreign-architectures | grep -qx arm64 || { dpkg --add-architecture arm64 && apt-get update -q >/dev/null; }
	@tools/setup.sh gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user pkg-config $(ARM64_PACKAGES)
	@mkdir -p $(ARM64)
test-arm64: setup-arm64
	@printf '#!/bin/sh\nexec $(EMULATOR) $(CURDIR)/$(ARM64)/release/keyhole "$$@"\n' > $(ARM64)/keyhole && chmod +x $(ARM64)/keyhole
	@$(ARM64_MAKE) test-programs
	@ln -sf release/libkeyhole.so $(ARM64)/libkeyhole.so
	@RUNNER='$(EMULATOR)' CC=aarch64-linux-gnu-gcc KEYHOLE_PATIENCE=300 KEYHOLE=$(CURDIR)/$(ARM64)/keyhole tests/run.sh \
	    $(call chosen,$(T),$(patsubst $(OUT)/%,$(ARM64)/release/%,$(TESTS)) $(sort $(wildcard tests/cli_*.sh)))
# The second way of src/base/portable.c, which systems other than Linux take: built and tested here, on Linux.
PORTABLE_TESTS := test_base test_base_file test_base_place test_plm_ranks test_report cli_builtin mpi_ranks
test-portable:
	@for t in $(PORTABLE_TESTS); do $(MAKE) -s --no-print-directory test T=$$t CFLAGS='$(CFLAGS) -DKH_PORTABLE' BUILD=$(BUILD)-portable || exit 1; done
.PHONY: test-portable
.PHONY: setup-arm64 test-arm64 test-programs
test-programs: $(OUT)/keyhole $(OUT)/libkeyhole.so $(TESTS)

test-slow: setup
	@$(MAKE) -s --no-print-directory $(OUT)/keyhole $(filter $(OUT)/%,$(SLOW_TESTS))
	@KEYHOLE=$(OUT)/keyhole tests/run.sh $(call chosen,$(T),$(SLOW_TESTS))

asan:
	@$(MAKE) -s --no-print-directory test MODE=asan

# The server under mixed traffic, good and hostile, for SECONDS (an hour, unless told otherwise).
soak: all
	@$(MAKE) -s --no-print-directory $(OUT)/tests/slow_soak
	KEYHOLE=$(OUT)/keyhole KEYHOLE_SOAK_SECONDS=$(if $(filter command% environment%,$(origin SECONDS)),$(SECONDS),3600) $(OUT)/tests/slow_soak

# Whole jobs, in which every allocation fails in turn; "make test" tries some of them.
test-oom: setup
	@$(MAKE) -s --no-print-directory $(OUT)/tests/test_oom
	@KEYHOLE_OOM=whole tests/run.sh $(OUT)/tests/test_oom

# What has threads of its own: the server with its queue and its watch, clients of services, ranks.
THREADED := $(foreach t,test_server test_server_asking test_server_classify test_server_decide test_server_guard test_server_third_party test_server_wire test_plm_http test_plm_ranks,$(BUILD)/tsan/tests/$t)
tsan: setup
	@$(MAKE) -s --no-print-directory MODE=tsan $(THREADED)
	@TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1 suppressions=tools/tsan.supp" tests/run.sh $(call chosen,$(T),$(THREADED))

# Some tests under valgrind: what is never written, also within libraries that were built without a sanitizer. Slow; T= chooses others.
VALGRIND := $(foreach t,test_base test_text_load test_model_safetensors test_posterior test_plm_wire test_fuzz,$(OUT)/tests/$t)
valgrind:
	@tools/setup.sh $(PACKAGES) valgrind
	@$(MAKE) -s --no-print-directory $(if $(T),$(call chosen,$(T),$(TESTS)),$(VALGRIND))
	@for t in $(if $(T),$(call chosen,$(T),$(TESTS)),$(VALGRIND)); do echo "== $$t"; OMP_NUM_THREADS=1 CMOCKA_MESSAGE_OUTPUT=TAP \
	    valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite --suppressions=tools/valgrind.supp $$t \
	    || exit 1; done

# ---- analysis ----------------------------------------------------------------------------------------------------------
# Branches of src/ that the quick tests take; $(BUILD)/coverage.html shows the rest line by line.
coverage:
	@tools/setup.sh $(PACKAGES) gcovr
	@find $(BUILD)/coverage -name '*.gcda' -delete 2>/dev/null || true
	@$(MAKE) -s --no-print-directory test MODE=coverage
	@tools/coverage.sh $(BUILD)

# Two static analysers; what they may keep for themselves stands, with the reason, in .clang-tidy and tools/analyze.sh.
analyze:
	@tools/setup.sh $(PACKAGES) cppcheck clang-tidy clang libomp-dev
	@$(MAKE) -s --no-print-directory $(OUT)/server/page.inc
	@CPPFLAGS='$(CPPFLAGS) -Icli -I$(OUT)' tools/analyze.sh $(SRC) $(CLI_SRC)

# ---- fuzzing -----------------------------------------------------------------------------------------------------------
SECONDS ?= 60
fuzz:
	@tools/setup.sh $(PACKAGES) clang libomp-dev libclang-rt-14-dev
	@tools/setup.sh $(OPTIONAL) || echo 'setup: going on without them' >&2
	@$(MAKE) -s --no-print-directory fuzz-run MODE=fuzz CC=clang
.PHONY: fuzz-run
fuzz-run: $(call chosen,$(F),$(FUZZERS))
	@tools/fuzz.sh $(SECONDS) $^

# Targets whose input has a structure that libFuzzer alone seldom keeps; the others are for its own mutations.
JSON_FUZZERS := $(foreach t,config decisions request_answer request_questions request_score task tokenizer_json,$(BUILD)/fuzz/fuzz/fuzz_$t)
$(BUILD)/fuzz/fuzz/fuzz_gguf: MUTATOR = $(OUT)/fuzz/custom_gguf.o $(OUT)/fuzz/mutators.o
$(BUILD)/fuzz/fuzz/fuzz_gguf: $(OUT)/fuzz/custom_gguf.o $(OUT)/fuzz/mutators.o
$(JSON_FUZZERS): MUTATOR = $(OUT)/fuzz/custom_json.o $(OUT)/fuzz/mutators.o
$(JSON_FUZZERS): $(OUT)/fuzz/custom_json.o $(OUT)/fuzz/mutators.o

$(BUILD)/fuzz/fuzz/%: $(OUT)/fuzz/%.o $(SERVER_OBJ) $(OUT)/libkeyhole.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(KH_LDFLAGS) -fsanitize=fuzzer -o $@ $< $(MUTATOR) $(SERVER_OBJ) $(OUT)/libkeyhole.a $(SERVER_LIBS) $(LIBS)

# ---- demo, bench, install ------------------------------------------------------------------------------------------------
demo: all
	@tools/setup.sh gnuplot-nox || true
	@if $(OUT)/keyhole inspect builtin >/dev/null 2>&1; then $(OUT)/keyhole demo --out $(BUILD)/demo; else tools/demo.sh $(OUT)/keyhole; fi

# The recipe of the built-in model. tools/builtin.sh says what INIT, TOKENS, DATA, STAGE and INTO change.
CORPUS ?= ../shared/corpus
builtin: all
	@tools/setup.sh xz-utils
	@tools/builtin.sh $(OUT)/keyhole $(CORPUS) $(BUILD)/builtin

bench: all
	@bench/run.sh $(OUT)/keyhole

bench-peers: all
	@bench/peers.sh $(OUT)/keyhole

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include \
	    $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/keyhole/models \
	    $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	install -m 755 $(OUT)/keyhole $(DESTDIR)$(PREFIX)/bin/keyhole
	if [ -f $(OUT)/keyhole-mpi.so ]; then install -d $(DESTDIR)$(PREFIX)/lib/keyhole && \
	    install -m 755 $(OUT)/keyhole-mpi.so $(DESTDIR)$(PREFIX)/lib/keyhole/keyhole-mpi.so; fi
	install -m 644 $(OUT)/libkeyhole.a $(DESTDIR)$(PREFIX)/lib/libkeyhole.a
	install -m 755 $(OUT)/libkeyhole.so $(DESTDIR)$(PREFIX)/lib/libkeyhole.so.$(VERSION)
	ln -sf libkeyhole.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/libkeyhole.so.0
	ln -sf libkeyhole.so.0 $(DESTDIR)$(PREFIX)/lib/libkeyhole.so
	install -m 644 include/keyhole.h $(DESTDIR)$(PREFIX)/include/keyhole.h
	install -m 644 $(OUT)/keyhole.1 $(DESTDIR)$(PREFIX)/share/man/man1/keyhole.1
	install -m 644 $(OUT)/keyhole.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/keyhole
	install -m 644 $(OUT)/keyhole.zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_keyhole
	install -m 644 $(OUT)/keyhole.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/keyhole.fish
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' -e 's|@LIBS@|$(shell $(PKG_CONFIG) --libs $(PKGS))|' tools/keyhole.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/keyhole.pc
	if [ -f models/builtin/config.json ]; then cp -R models/builtin $(DESTDIR)$(PREFIX)/share/keyhole/models/; fi
	cp -R examples $(DESTDIR)$(PREFIX)/share/keyhole/

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/keyhole $(DESTDIR)$(PREFIX)/lib/libkeyhole.* $(DESTDIR)$(PREFIX)/include/keyhole.h \
	    $(DESTDIR)$(PREFIX)/lib/pkgconfig/keyhole.pc $(DESTDIR)$(PREFIX)/share/man/man1/keyhole.1 \
	    $(DESTDIR)$(PREFIX)/share/bash-completion/completions/keyhole $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_keyhole \
	    $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/keyhole.fish
	rm -rf $(DESTDIR)$(PREFIX)/share/keyhole $(DESTDIR)$(PREFIX)/lib/keyhole

# ---- what people without a compiler install, and the documents as pages -------------------------------------------------
# In $(BUILD)/packages; never committed. The program and the library are those of this build.
wheel: all
	@tools/setup.sh patchelf binutils
	@tools/package.sh wheel $(OUT) $(VERSION) $(ARCH) $(BUILD)/packages
dist: all
	@tools/setup.sh patchelf binutils
	@tools/package.sh dist $(OUT) $(VERSION) $(ARCH) $(BUILD)/packages
# The same two for 64-bit ARM, cross-built. The man page and completion do not depend on the machine: they are this one's.
wheel-arm64 dist-arm64: %-arm64: all setup-arm64
	@tools/setup.sh patchelf binutils
	@$(ARM64_MAKE) $(ARM64)/release/keyhole $(ARM64)/release/libkeyhole.so
	@cp $(OUT)/keyhole.1 $(COMPLETIONS) $(ARM64)/release/
	@CROSS=aarch64-linux-gnu- LDD='qemu-aarch64 /lib/ld-linux-aarch64.so.1 --list' \
	    tools/package.sh $* $(ARM64)/release $(VERSION) aarch64 $(ARM64)/packages
deb: all
	@$(MAKE) -s --no-print-directory $(OUT)/libkeyhole.a
	@tools/setup.sh dpkg-dev lintian
	@tools/make_deb.sh $(OUT) $(VERSION) $(BUILD)/packages '$(PKGS)'
doc: all
	@tools/setup.sh python3-markdown
	@/usr/bin/python3 tools/make_site.py $(OUT)/keyhole $(BUILD)/site
.PHONY: wheel dist wheel-arm64 dist-arm64 deb doc

clean:
	rm -rf $(BUILD) $(BUILD)-portable $(BUILD)-arm64

-include $(OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(FUZZ_OBJ:.o=.d) $(TESTS:=.d)
