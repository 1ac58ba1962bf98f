/* SPDX-License-Identifier: Apache-2.0 */
/* gloo-ring: gloo's ring all-reduce with the clock, sizes, data and report of
 * reduction-bench. It is the algorithm that PyTorch's "gloo" backend runs on CPU tensors:
 * chunked, in segments of at most 1 MiB, two of which are in flight. Ranks are processes
 * that find each other through files in a folder and connect over TCP. By default all
 * start here, on 127.0.0.1; with --rank this process is one rank, at an address of its
 * own (bench/net). float32, sum. */
#include "bench/bench.h"
#include "bench/help_version.h"

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

const char usage[] = "Usage: gloo-ring [OPTION]...\n"
		     "gloo's ring all-reduce of float32, measured as reduction-bench measures.\n\n"
		     "  -b, --minbytes SIZE    smallest size in bytes, K, M, G allowed (default 4K)\n"
		     "  -e, --maxbytes SIZE    largest size (default 64M)\n"
		     "  -f, --stepfactor X     each size is X times the one before (default 4)\n"
		     "  -n, --iters N          timed iterations (default 20)\n"
		     "  -w, --warmup N         iterations before them (default 5)\n"
		     "      --inplace WHICH    both, only (in place only) or no (default both)\n"
		     "      --ranks N          processes, all started here on loopback (default 4)\n"
		     "      --rank R           be only rank R of them; needs --store\n"
		     "      --store DIR        empty folder where the ranks meet, the same for all\n"
		     "      --address ADDR     this rank's address (default 127.0.0.1)\n"
		     "      --json             JSON lines instead of the table\n"
		     "  -h, --help             print this and exit\n";

double now_us()
{
	auto t = std::chrono::steady_clock::now().time_since_epoch();
	return std::chrono::duration<double, std::micro>(t).count();
}

/* One rank's connection to the others. */
class Ring
{
      public:
	Ring(int rank, int ranks, const std::string &dir, const std::string &address)
	{
		gloo::transport::tcp::attr attr;
		attr.hostname = address;
		auto device = gloo::transport::tcp::CreateDevice(attr);
		gloo::rendezvous::FileStore store(dir);
		auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
		context->connectFullMesh(store, device);
		context_ = context;
	}

	template <typename T>
	void all_reduce(T *send, T *recv, size_t count, void (*reduce)(void *, const void *, const void *, size_t))
	{
		gloo::AllreduceOptions opts(context_);
		opts.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
		if (send != recv)
			opts.setInput(send, count);
		opts.setOutput(recv, count);
		opts.setReduceFunction(reduce);
		gloo::allreduce(opts);
	}

      private:
	std::shared_ptr<gloo::Context> context_;
};

class Bench
{
      public:
	Bench(const bench_options &o, int rank, const std::string &dir, const std::string &address)
	    : o_(o), rank_(rank), ring_(rank, o.ranks, dir, address), send_(o.max_bytes / sizeof(float) + 1),
	      recv_(o.max_bytes / sizeof(float) + 1), us_(o.iters), pattern_(new bench_pattern)
	{
		bench_pattern_init(pattern_.get(), RS_FLOAT32, RS_SUM, rank, o.ranks);
	}

	/* The number of wrong elements over all sizes. */
	uint64_t run()
	{
		uint64_t wrong = 0;
		if (rank_ == 0)
			bench_print_header(&o_, o_.ranks);
		for (uint64_t bytes = o_.min_bytes; bytes; bytes = bench_next_size(&o_, bytes)) {
			bench_row row = {};
			row.count = bytes / sizeof(float);
			row.bytes = row.count * sizeof(float);
			row.dtype = RS_FLOAT32;
			row.op = RS_SUM;
			row.ranks = o_.ranks;
			if (o_.place & PLACE_OUT)
				wrong += measure(row, false);
			if (o_.place & PLACE_IN)
				wrong += measure(row, true);
			if (rank_ == 0)
				bench_print_row(&o_, &row);
		}
		return wrong;
	}

      private:
	uint64_t measure(bench_row &row, bool in_place)
	{
		float *recv = in_place ? send_.data() : recv_.data();
		bench_pattern_fill(pattern_.get(), send_.data(), row.count);
		memset(recv_.data(), 0xa5, row.bytes);
		float ready = 0;
		ring_.all_reduce(&ready, &ready, 1, &gloo::sum<float>); /* a barrier */
		for (unsigned i = 0; i < o_.warmup + o_.iters; i++) {
			double start = now_us();
			ring_.all_reduce(send_.data(), recv, row.count, &gloo::sum<float>);
			if (i >= o_.warmup)
				us_[i - o_.warmup] = now_us() - start;
		}
		ring_.all_reduce(us_.data(), us_.data(), us_.size(), &gloo::max<double>);
		bench_times_of(&row.times[in_place], us_.data(), o_.iters);
		if (in_place) { /* has been summed repeatedly: check one iteration on fresh data */
			bench_pattern_fill(pattern_.get(), send_.data(), row.count);
			ring_.all_reduce(send_.data(), recv, row.count, &gloo::sum<float>);
		}
		uint64_t wrong = bench_pattern_wrong(pattern_.get(), recv, row.count);
		ring_.all_reduce(&wrong, &wrong, 1, &gloo::sum<uint64_t>);
		row.times[in_place].wrong = wrong;
		row.has[in_place] = true;
		return wrong;
	}

	bench_options o_;
	int rank_;
	Ring ring_;
	std::vector<float> send_, recv_;
	std::vector<double> us_;
	std::unique_ptr<bench_pattern> pattern_;
};

uint64_t number(const char *name, const char *text, uint64_t min, uint64_t max)
{
	static const std::string units = "KMG";
	size_t used = 0;
	unsigned long long v = std::stoull(text, &used);
	size_t unit = text[used] ? units.find(text[used]) : std::string::npos;
	if (unit != std::string::npos) {
		v <<= 10 * (unit + 1);
		used++;
	}
	if (text[used] || v < min || v > max)
		throw std::invalid_argument(std::string("--") + name + ": found \"" + text + "\"");
	return v;
}

bench_place place(const std::string &word)
{
	if (word != "both" && word != "only" && word != "no")
		throw std::invalid_argument("--inplace: found \"" + word + "\"");
	return word == "both" ? PLACE_BOTH : word == "only" ? PLACE_IN : PLACE_OUT;
}

/* The options of one rank of several that were started separately. */
struct Place {
	int rank = -1; /* -1: all ranks are started here */
	std::string store, address = "127.0.0.1";
};

/* Throws on an invalid argument. */
void parse(bench_options &o, Place &alone, int argc, char **argv)
{
	static const option longs[] = {{"minbytes", 1, NULL, 'b'},
				       {"maxbytes", 1, NULL, 'e'},
				       {"stepfactor", 1, NULL, 'f'},
				       {"iters", 1, NULL, 'n'},
				       {"warmup", 1, NULL, 'w'},
				       {"ranks", 1, NULL, 'r'},
				       {"json", 0, NULL, 'j'},
				       {"inplace", 1, NULL, 'p'},
				       {"rank", 1, NULL, 'R'},
				       {"store", 1, NULL, 's'},
				       {"address", 1, NULL, 'a'},
				       {}};
	for (int key; (key = getopt_long(argc, argv, "b:e:f:n:w:", longs, NULL)) != -1;) {
		if (key == 'b')
			o.min_bytes = number("minbytes", optarg, 4, 1ull << 40);
		else if (key == 'e')
			o.max_bytes = number("maxbytes", optarg, 4, 1ull << 40);
		else if (key == 'f')
			o.factor = (double)number("stepfactor", optarg, 2, 1 << 20);
		else if (key == 'n')
			o.iters = (unsigned)number("iters", optarg, 1, 1000000);
		else if (key == 'w')
			o.warmup = (unsigned)number("warmup", optarg, 0, 1000000);
		else if (key == 'r')
			o.ranks = (int)number("ranks", optarg, 1, 1024);
		else if (key == 'p')
			o.place = place(optarg);
		else if (key == 'j')
			o.json = true;
		else if (key == 'R')
			alone.rank = (int)number("rank", optarg, 0, 1023);
		else if (key == 's')
			alone.store = optarg;
		else if (key == 'a')
			alone.address = optarg;
		else
			throw std::invalid_argument("an option is not known");
	}
	if (alone.rank >= o.ranks)
		throw std::invalid_argument("--rank is not below --ranks");
	if ((alone.rank >= 0) != !alone.store.empty())
		throw std::invalid_argument("--rank and --store belong together");
}

/* Runs one rank; returns the exit code. */
int run_rank(const bench_options &o, int rank, const std::string &dir, const std::string &address)
{
	try {
		return Bench(o, rank, dir, address).run() != 0;
	} catch (const std::exception &e) {
		fprintf(stderr, "gloo-ring: rank %d: %s\n", rank, e.what());
		return 1;
	}
}

/* Runs all ranks in processes of their own; returns the exit code. */
int run_all(const bench_options &o, bench_local &local, const std::string &dir, int *ret_rank)
{
	rs_err err;
	if (bench_local_fork(&local, &o, ret_rank, &err)) {
		fprintf(stderr, "gloo-ring: %s\n", err.msg);
		return 1;
	}
	if (*ret_rank < 0)
		return bench_local_wait(&local);
	return run_rank(o, *ret_rank, dir, "127.0.0.1");
}

} // namespace

int main(int argc, char **argv)
{
	bench_options o = {};
	bench_local local = {};
	rs_err err;
	char dir[] = "/tmp/gloo-ring.XXXXXX";
	int rank = -1;
	Place alone;

	o.system = "gloo-ring";
	o.version = "of libgloo";
	o.min_bytes = 4096;
	o.max_bytes = 64 << 20;
	o.factor = 4;
	o.iters = 20;
	o.warmup = 5;
	o.in_flight = 1;
	o.place = PLACE_BOTH;
	o.ranks = 4;
	if (bench_help_or_version(argc, argv, "gloo-ring", usage))
		return 0;
	try {
		parse(o, alone, argc, argv);
	} catch (const std::exception &e) {
		fprintf(stderr, "gloo-ring: %s; see --help\n", e.what());
		return 2;
	}
	if (alone.rank >= 0) {
		int code = run_rank(o, alone.rank, alone.store, alone.address);
		fflush(stdout);
		_exit(code); /* gloo's threads end with the process */
	}
	if (bench_local_start(&local, &o, &err)) {
		fprintf(stderr, "gloo-ring: %s\n", err.msg);
		return 1;
	}
	if (!mkdtemp(dir)) {
		perror("gloo-ring: cannot make a temporary folder");
		return 1;
	}
	int code = run_all(o, local, dir, &rank);
	if (rank >= 0) {
		fflush(stdout);
		_exit(code); /* gloo's threads end with the process */
	}
	bench_local_close(&local);
	std::filesystem::remove_all(dir);
	return code;
}
