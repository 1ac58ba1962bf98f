/* SPDX-License-Identifier: Apache-2.0 */
/* gloo-ring: gloo's ring all-reduce with the clock, sizes, data and report of
 * reduction-bench. It is the algorithm that PyTorch's "gloo" backend runs on CPU tensors:
 * chunked, in segments of at most 1 MiB, two of which are in flight. Ranks are processes
 * that find each other through files in a folder and connect over TCP. By default all
 * start here, on 127.0.0.1; with --rank this process is one rank, at an address of its
 * own (bench/net). float32, sum.
 *
 * With --racks it is a 2-D ring instead, made of groups of gloo as an expert would do by
 * hand: reduce-scatter within the rack, all-reduce of each part across the racks,
 * all-gather within the rack. Buffers are cut into pieces, and the three steps work on
 * different pieces at the same time. */
#include "bench/bench.h"
#include "bench/help_version.h"

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
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
		     "      --racks N          2-D ring of N racks, in each of which as many ranks follow\n"
		     "                         each other; with --rank only\n"
		     "      --piece SIZE       bytes that a step of a 2-D ring works on at once (default 1M)\n"
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

/* Some ranks with connections of their own, in a ring. Part i of a buffer belongs to
 * member i. */
class Group
{
      public:
	Group(int member, int members, const std::string &name, gloo::rendezvous::Store &store,
	      std::shared_ptr<gloo::transport::Device> device)
	    : member_(member), members_(members)
	{
		gloo::rendezvous::PrefixStore mine(name, store);
		auto context = std::make_shared<gloo::rendezvous::Context>(member, members);
		context->connectFullMesh(mine, device);
		context_ = context;
	}

	size_t begin(int part, size_t count) const
	{
		return count * (size_t)part / (size_t)members_;
	}

	/* Leaves the sum of all members in this member's part of data. */
	void reduce_scatter(float *data, size_t count)
	{
		received_.resize(count / (size_t)members_ + 1);
		auto from = buffer(data, count), to = buffer(received_.data(), received_.size());
		for (int i = 1; i < members_; i++) {
			int part = before(i + 1);
			pass(*from, before(i), *to, 0, part, count);
			gloo::sum<float>(data + begin(part, count), data + begin(part, count), received_.data(),
					 begin(part + 1, count) - begin(part, count));
		}
	}

	/* Copies each member's part of data to all members. */
	void all_gather(float *data, size_t count)
	{
		auto whole = buffer(data, count);
		for (int i = 0; i + 1 < members_; i++) {
			int part = before(i + 1);
			pass(*whole, before(i), *whole, begin(part, count), part, count);
		}
	}

	void all_reduce(float *data, size_t count)
	{
		void (*sum)(void *, const void *, const void *, size_t) = &gloo::sum<float>;
		gloo::AllreduceOptions opts(context_);
		opts.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
		opts.setOutput(data, count);
		opts.setReduceFunction(sum);
		if (count > 0)
			gloo::allreduce(opts);
	}

      private:
	using Buffer = gloo::transport::UnboundBuffer;

	int before(int steps) const
	{
		return (member_ + 2 * members_ - steps) % members_;
	}

	std::unique_ptr<Buffer> buffer(float *data, size_t count)
	{
		return context_->createUnboundBuffer(data, count * sizeof(float));
	}

	/* Sends a part to the next member and receives another one from the member before. */
	void pass(Buffer &from, int sent, Buffer &to, size_t at, int received, size_t count)
	{
		size_t first = begin(sent, count), bytes = (begin(sent + 1, count) - first) * sizeof(float);
		from.send((member_ + 1) % members_, 0, first * sizeof(float), bytes);
		to.recv(before(1), 0, at * sizeof(float),
			(begin(received + 1, count) - begin(received, count)) * sizeof(float));
		from.waitSend();
		to.waitRecv();
	}

	int member_, members_;
	std::shared_ptr<gloo::Context> context_;
	std::vector<float> received_;
};

/* A rank of a 2-D ring: a group for each of the three steps, so that these can work on
 * different pieces at the same time. */
class Grid
{
      public:
	Grid(int rank, int ranks, int racks, size_t piece, const std::string &dir, const std::string &address)
	    : piece_(piece / sizeof(float)), in_rack_(ranks / racks), place_(rank % in_rack_), store_(dir),
	      device_(make_device(address)),
	      scatter_(place_, in_rack_, "scatter" + std::to_string(rank / in_rack_), store_, device_),
	      across_(rank / in_rack_, racks, "across" + std::to_string(place_), store_, device_),
	      gather_(place_, in_rack_, "gather" + std::to_string(rank / in_rack_), store_, device_)
	{
	}

	void all_reduce(const float *send, float *recv, size_t count)
	{
		size_t pieces = (count + piece_ - 1) / piece_;
		done_[0] = done_[1] = 0;
		std::thread across([&] {
			for (size_t i = 0; i < pieces; i++) {
				wait(0, i);
				float *data = recv + i * piece_;
				size_t n = size(i, count), mine = scatter_.begin(place_, n);
				across_.all_reduce(data + mine, scatter_.begin(place_ + 1, n) - mine);
				finish(1);
			}
		});
		std::thread gather([&] {
			for (size_t i = 0; i < pieces; i++) {
				wait(1, i);
				gather_.all_gather(recv + i * piece_, size(i, count));
			}
		});
		for (size_t i = 0; i < pieces; i++) {
			float *data = recv + i * piece_;
			if (send != recv)
				memcpy(data, send + i * piece_, size(i, count) * sizeof(float));
			scatter_.reduce_scatter(data, size(i, count));
			finish(0);
		}
		across.join();
		gather.join();
	}

      private:
	static std::shared_ptr<gloo::transport::Device> make_device(const std::string &address)
	{
		gloo::transport::tcp::attr attr;
		attr.hostname = address;
		return gloo::transport::tcp::CreateDevice(attr);
	}

	size_t size(size_t piece, size_t count) const
	{
		return std::min(piece_, count - piece * piece_);
	}

	void finish(int step)
	{
		std::lock_guard<std::mutex> lock(mutex_);
		done_[step]++;
		changed_.notify_all();
	}

	/* Waits until a step is done with a piece. */
	void wait(int step, size_t piece)
	{
		std::unique_lock<std::mutex> lock(mutex_);
		changed_.wait(lock, [&] { return done_[step] > piece; });
	}

	size_t piece_; /* elements */
	int in_rack_, place_;
	gloo::rendezvous::FileStore store_;
	std::shared_ptr<gloo::transport::Device> device_;
	Group scatter_, across_, gather_;
	std::mutex mutex_;
	std::condition_variable changed_;
	size_t done_[2]; /* pieces */
};

/* The options that reduction-bench does not have. */
struct Place {
	int rank = -1; /* -1: all ranks are started here */
	std::string store, address = "127.0.0.1";
	int racks = 0; /* 0: one ring of all ranks */
	uint64_t piece = 1 << 20;
};

class Bench
{
      public:
	Bench(const bench_options &o, int rank, const Place &place)
	    : o_(o), rank_(rank), ring_(rank, o.ranks, place.store, place.address),
	      send_(o.max_bytes / sizeof(float) + 1), recv_(o.max_bytes / sizeof(float) + 1), us_(o.iters),
	      pattern_(new bench_pattern)
	{
		if (place.racks)
			grid_.reset(new Grid(rank, o.ranks, place.racks, place.piece, place.store, place.address));
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
	void all_reduce(float *recv, size_t count)
	{
		if (grid_)
			grid_->all_reduce(send_.data(), recv, count);
		else
			ring_.all_reduce(send_.data(), recv, count, &gloo::sum<float>);
	}

	uint64_t measure(bench_row &row, bool in_place)
	{
		float *recv = in_place ? send_.data() : recv_.data();
		bench_pattern_fill(pattern_.get(), send_.data(), row.count);
		memset(recv_.data(), 0xa5, row.bytes);
		float ready = 0;
		ring_.all_reduce(&ready, &ready, 1, &gloo::sum<float>); /* a barrier */
		for (unsigned i = 0; i < o_.warmup + o_.iters; i++) {
			double start = now_us();
			all_reduce(recv, row.count);
			if (i >= o_.warmup)
				us_[i - o_.warmup] = now_us() - start;
		}
		ring_.all_reduce(us_.data(), us_.data(), us_.size(), &gloo::max<double>);
		bench_times_of(&row.times[in_place], us_.data(), o_.iters);
		if (in_place) { /* has been summed repeatedly: check one iteration on fresh data */
			bench_pattern_fill(pattern_.get(), send_.data(), row.count);
			all_reduce(recv, row.count);
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
	std::unique_ptr<Grid> grid_;
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

/* Throws on an invalid argument. */
void parse(bench_options &o, Place &alone, int argc, char **argv)
{
	static const option longs[] = {{"minbytes", 1, NULL, 'b'},   {"maxbytes", 1, NULL, 'e'},
				       {"stepfactor", 1, NULL, 'f'}, {"iters", 1, NULL, 'n'},
				       {"warmup", 1, NULL, 'w'},     {"ranks", 1, NULL, 'r'},
				       {"json", 0, NULL, 'j'},       {"inplace", 1, NULL, 'p'},
				       {"rank", 1, NULL, 'R'},       {"store", 1, NULL, 's'},
				       {"address", 1, NULL, 'a'},    {"racks", 1, NULL, 'g'},
				       {"piece", 1, NULL, 'c'},      {}};
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
		else if (key == 'g')
			alone.racks = (int)number("racks", optarg, 2, 1024);
		else if (key == 'c')
			alone.piece = number("piece", optarg, 4, 1ull << 40);
		else
			throw std::invalid_argument("an option is not known");
	}
	if (alone.rank >= o.ranks)
		throw std::invalid_argument("--rank is not below --ranks");
	if ((alone.rank >= 0) != !alone.store.empty())
		throw std::invalid_argument("--rank and --store belong together");
	if (alone.racks && (alone.rank < 0 || o.ranks % alone.racks))
		throw std::invalid_argument("--racks needs --rank, and as many ranks in each rack");
}

/* Runs one rank; returns the exit code. */
int run_rank(const bench_options &o, int rank, const Place &place)
{
	try {
		return Bench(o, rank, place).run() != 0;
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
	Place here;
	here.store = dir;
	return run_rank(o, *ret_rank, here);
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
		int code = run_rank(o, alone.rank, alone);
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
