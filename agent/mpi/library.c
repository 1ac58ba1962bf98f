/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mpi/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The predefined types, by their names in the interfaces: the variable of Open MPI, the
 * numbers of MPICH and of the standard interface. */
static const struct {
	const char *open_mpi;
	uint32_t mpich;
	uint16_t standard;
	uint8_t elements, bytes;
	char kind; /* i, u or f: signed, unsigned, floating. I and F: options of a Fortran compiler change the size */
} types[] = {
    {"ompi_mpi_float", 0x4c00040a, 0x210, 1, 4, 'f'},
    {"ompi_mpi_double", 0x4c00080b, 0x214, 1, 8, 'f'},
    {"ompi_mpi_int", 0x4c000405, 0x209, 1, 4, 'i'},
    {"ompi_mpi_long", 0x4c000807, 0x20a, 1, sizeof(long), 'i'},
    {"ompi_mpi_long_long_int", 0x4c000809, 0x20b, 1, 8, 'i'},
    {"ompi_mpi_unsigned", 0x4c000406, 0x20d, 1, 4, 'u'},
    {"ompi_mpi_unsigned_long", 0x4c000808, 0x20e, 1, sizeof(long), 'u'},
    {"ompi_mpi_unsigned_long_long", 0x4c000819, 0x20f, 1, 8, 'u'},
    {"ompi_mpi_signed_char", 0x4c000118, 0x244, 1, 1, 'i'},
    {"ompi_mpi_unsigned_char", 0x4c000102, 0x245, 1, 1, 'u'},
    {"ompi_mpi_int8_t", 0x4c000137, 0x240, 1, 1, 'i'},
    {"ompi_mpi_int32_t", 0x4c000439, 0x250, 1, 4, 'i'},
    {"ompi_mpi_int64_t", 0x4c00083a, 0x258, 1, 8, 'i'},
    {"ompi_mpi_uint8_t", 0x4c00013b, 0x241, 1, 1, 'u'},
    {"ompi_mpi_uint32_t", 0x4c00043d, 0x251, 1, 4, 'u'},
    {"ompi_mpi_uint64_t", 0x4c00083e, 0x259, 1, 8, 'u'},
    {"ompi_mpi_aint", 0x4c000843, 0x201, 1, sizeof(intptr_t), 'i'},
    {"ompi_mpi_offset", 0x4c000844, 0x203, 1, 8, 'i'},
    {"ompi_mpi_count", 0x4c000845, 0x202, 1, 8, 'i'},
    {"ompi_mpi_c_float_complex", 0x4c000840, 0x212, 2, 8, 'f'},
    {"ompi_mpi_c_double_complex", 0x4c001041, 0x216, 2, 16, 'f'},
    {"ompi_mpi_cxx_cplex", 0x4c000834, 0x213, 2, 8, 'f'},
    {"ompi_mpi_cxx_dblcplex", 0x4c001035, 0x217, 2, 16, 'f'},
    {"ompi_mpi_integer", 0x4c00041b, 0x219, 1, 4, 'I'},
    {"ompi_mpi_real", 0x4c00041c, 0x21a, 1, 4, 'F'},
    {"ompi_mpi_dblprec", 0x4c00081f, 0x21c, 1, 8, 'F'},
    {"ompi_mpi_cplex", 0x4c00081e, 0x21b, 2, 8, 'F'},
    {"ompi_mpi_dblcplex", 0x4c001022, 0x21d, 2, 16, 'F'},
    {"ompi_mpi_integer1", 0x4c00012d, 0x2c1, 1, 1, 'i'},
    {"ompi_mpi_integer4", 0x4c000430, 0x2d1, 1, 4, 'i'},
    {"ompi_mpi_integer8", 0x4c000831, 0x2d9, 1, 8, 'i'},
    {"ompi_mpi_real4", 0x4c000427, 0x2d2, 1, 4, 'f'},
    {"ompi_mpi_real8", 0x4c000829, 0x2da, 1, 8, 'f'},
    {"ompi_mpi_complex8", 0x4c000828, 0x2db, 2, 8, 'f'},
    {"ompi_mpi_complex16", 0x4c00102a, 0x2e3, 2, 16, 'f'},
};
_Static_assert(COUNT(types) <= MPI_TYPES_MAX, "all predefined types have room");

/* Other handles, each with its place in struct mpi. */
static const struct {
	size_t at;
	const char *open_mpi;
	uint32_t mpich;
	uint16_t standard;
} handles[] = {
    {offsetof(struct mpi, comm_world), "ompi_mpi_comm_world", 0x44000000, 0x101},
    {offsetof(struct mpi, comm_self), "ompi_mpi_comm_self", 0x44000001, 0x102},
    {offsetof(struct mpi, info_null), "ompi_mpi_info_null", 0x1c000000, 0x130},
    {offsetof(struct mpi, byte), "ompi_mpi_byte", 0x4c00010d, 0x247},
    {offsetof(struct mpi, int32), "ompi_mpi_int", 0x4c000405, 0x209},
    {offsetof(struct mpi, sum), "ompi_mpi_op_sum", 0x58000003, 0x21},
    {offsetof(struct mpi, prod), "ompi_mpi_op_prod", 0x58000004, 0x24},
    {offsetof(struct mpi, min), "ompi_mpi_op_min", 0x58000002, 0x22},
    {offsetof(struct mpi, max), "ompi_mpi_op_max", 0x58000001, 0x23},
};

/* The numbers of each interface. */
static const struct {
	intptr_t in_place;
	int thread_multiple, comm_type_shared, err_other;
	size_t status_source, status_tag;
} numbers[MPI_INTERFACES] = {
    [MPI_OPEN_MPI] = {1, 3, 0, 16, 0, 4},
    [MPI_MPICH] = {-1, 3, 1, 15, 8, 12},
    [MPI_STANDARD] = {1, 0x1000, 0xdd, 16, 0, 4},
};
enum { UNDEFINED = -32766 }; /* MPI_UNDEFINED of all of them */

#define FUNCTION(member, name)                                                                                         \
	{                                                                                                              \
		offsetof(struct mpi_functions, member), "PMPI_" name                                                   \
	}

static const struct {
	size_t at;
	const char *name;
} functions[] = {
    FUNCTION(allreduce, "Allreduce"),
    FUNCTION(iallreduce, "Iallreduce"),
    FUNCTION(bcast, "Bcast"),
    FUNCTION(ibarrier, "Ibarrier"),
    FUNCTION(test, "Test"),
    FUNCTION(exscan, "Exscan"),
    FUNCTION(abort, "Abort"),
    FUNCTION(initialized, "Initialized"),
    FUNCTION(finalized, "Finalized"),
    FUNCTION(query_thread, "Query_thread"),
    FUNCTION(comm_rank, "Comm_rank"),
    FUNCTION(comm_size, "Comm_size"),
    FUNCTION(comm_test_inter, "Comm_test_inter"),
    FUNCTION(comm_split_type, "Comm_split_type"),
    FUNCTION(comm_free, "Comm_free"),
    FUNCTION(comm_create_keyval, "Comm_create_keyval"),
    FUNCTION(comm_set_attr, "Comm_set_attr"),
    FUNCTION(comm_get_attr, "Comm_get_attr"),
    FUNCTION(comm_call_errhandler, "Comm_call_errhandler"),
    FUNCTION(type_size_x, "Type_size_x"),
    FUNCTION(type_get_extent, "Type_get_extent"),
    FUNCTION(type_get_true_extent, "Type_get_true_extent"),
    FUNCTION(type_get_envelope, "Type_get_envelope"),
    FUNCTION(pack, "Pack"),
    FUNCTION(unpack, "Unpack"),
    FUNCTION(grequest_start, "Grequest_start"),
    FUNCTION(grequest_complete, "Grequest_complete"),
    FUNCTION(status_set_elements, "Status_set_elements"),
    FUNCTION(status_set_cancelled, "Status_set_cancelled"),
    FUNCTION(allreduce_c, "Allreduce_c"),
    FUNCTION(iallreduce_c, "Iallreduce_c"),
    FUNCTION(bcast_c, "Bcast_c"),
    FUNCTION(type_get_envelope_c, "Type_get_envelope_c"),
    FUNCTION(type_f2c, "Type_f2c"),
    FUNCTION(op_f2c, "Op_f2c"),
    FUNCTION(comm_f2c, "Comm_f2c"),
    FUNCTION(request_c2f, "Request_c2f"),
};

/* Returns a handle of the object that has this address; NULL: it is not found. */
static void *object_of(const void *address)
{
	Dl_info info;

	return dladdr(address, &info) && info.dli_fname ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
}

/* Looks for a library in the order in which the dynamic linker looks for the caller's
 * symbols: first among those that all objects of the process share, then among those that
 * the caller's object brings (Python opens modules so). */
static void *find_handle(const void *caller)
{
	void *all = dlopen(NULL, RTLD_LAZY), *handle;

	if (all && dlsym(all, "PMPI_Allreduce"))
		return all;
	handle = object_of(caller);
	return handle && dlsym(handle, "PMPI_Allreduce") ? handle : NULL;
}

/* Looks for a symbol in the caller's object and those that it brings; NULL: none. */
static void *find_nearby(const char *name, const void *caller)
{
	void *object = object_of(caller);

	return object ? dlsym(object, name) : NULL;
}

static enum mpi_interface find_interface(void *handle)
{
	int (*version)(int *, int *) = NULL;
	void *symbol = dlsym(handle, "PMPI_Abi_get_version");
	int major = -1, minor = -1;

	memcpy(&version, &symbol, sizeof version);
	if (version && version(&major, &minor) == MPI_SUCCEEDED && major > 0)
		return MPI_STANDARD;
	return dlsym(handle, "ompi_mpi_comm_world") ? MPI_OPEN_MPI : MPI_MPICH;
}

static mpi_handle take_handle(const struct mpi *m, void *handle, const char *open_mpi, uint32_t mpich,
			      uint16_t standard)
{
	if (m->interface == MPI_OPEN_MPI)
		return (mpi_handle)dlsym(handle, open_mpi);
	return m->interface == MPI_MPICH ? mpich : standard;
}

static reduction_dtype dtype_of(char kind, unsigned bytes)
{
	if (kind == 'f' || kind == 'F')
		return bytes == 4 ? REDUCTION_FLOAT32 : REDUCTION_FLOAT64;
	if (kind == 'i' || kind == 'I')
		return bytes == 1 ? REDUCTION_INT8 : bytes == 4 ? REDUCTION_INT32 : REDUCTION_INT64;
	return bytes == 1 ? REDUCTION_UINT8 : bytes == 4 ? REDUCTION_UINT32 : REDUCTION_UINT64;
}

static void take_types(struct mpi *m, void *handle)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		struct mpi_type t = {
		    .handle = take_handle(m, handle, types[i].open_mpi, types[i].mpich, types[i].standard),
		    .dtype = dtype_of(types[i].kind, types[i].bytes / types[i].elements),
		    .elements = types[i].elements,
		    .bytes = types[i].bytes,
		    .fortran = types[i].kind == 'I' || types[i].kind == 'F',
		};

		if (t.handle)
			m->types[m->types_n++] = t;
	}
}

static int take_functions(struct mpi *m, void *handle, char *why, size_t room)
{
	for (size_t i = 0; i < COUNT(functions); i++) {
		void *symbol = dlsym(handle, functions[i].name);

		if (!symbol && functions[i].at < offsetof(struct mpi_functions, allreduce_c)) {
			snprintf(why, room, "the MPI of this program has no %s: MPI 3 or newer is needed",
				 functions[i].name);
			return -1;
		}
		memcpy((char *)&m->call + functions[i].at, &symbol, sizeof symbol);
	}
	return 0;
}

int mpi_find(struct mpi *ret, const void *caller, char *why, size_t room)
{
	void *handle = find_handle(caller);
	enum mpi_interface i;

	if (!handle) {
		snprintf(why, room, "no MPI library was found in this process");
		return -1;
	}
	i = find_interface(handle);
	*ret = (struct mpi){
	    .interface = i,
	    .in_place = (const void *)numbers[i].in_place,
	    .thread_multiple = numbers[i].thread_multiple,
	    .comm_type_shared = numbers[i].comm_type_shared,
	    .err_other = numbers[i].err_other,
	    .undefined = UNDEFINED,
	    .status_source = numbers[i].status_source,
	    .status_tag = numbers[i].status_tag,
	    .fortran_in_place = {dlsym(handle, "mpi_fortran_in_place_"), find_nearby("mpi_fortran_in_place_", caller)},
	    .fortran_bottom = {dlsym(handle, "mpi_fortran_bottom_"), find_nearby("mpi_fortran_bottom_", caller)},
	};
	if (take_functions(ret, handle, why, room))
		return -1;
	for (size_t h = 0; h < COUNT(handles); h++) {
		mpi_handle v = take_handle(ret, handle, handles[h].open_mpi, handles[h].mpich, handles[h].standard);

		memcpy((char *)ret + handles[h].at, &v, sizeof v);
	}
	take_types(ret, handle);
	return 0;
}

void *mpi_find_function(const char *name, const void *caller)
{
	void *symbol = dlsym(RTLD_NEXT, name);
	Dl_info found, own;

	if (symbol)
		return symbol;
	symbol = find_nearby(name, caller);
	return symbol && dladdr(symbol, &found) && dladdr(types, &own) && found.dli_fbase != own.dli_fbase ? symbol
													   : NULL;
}

mpi_handle mpi_load(const struct mpi *m, const void *from)
{
	mpi_handle wide;
	uint32_t narrow;

	if (m->interface == MPI_MPICH) {
		memcpy(&narrow, from, sizeof narrow);
		return narrow;
	}
	memcpy(&wide, from, sizeof wide);
	return wide;
}

const struct mpi_type *mpi_find_type(const struct mpi *m, mpi_handle type)
{
	int64_t bytes;

	for (unsigned i = 0; i < m->types_n; i++)
		if (m->types[i].handle == type)
			return !m->types[i].fortran || (m->call.type_size_x(type, &bytes) == MPI_SUCCEEDED &&
							bytes == m->types[i].bytes)
				   ? &m->types[i]
				   : NULL;
	return NULL;
}

bool mpi_is_named(const struct mpi *m, mpi_handle type)
{
	int64_t wide[4] = {0};
	int narrow[3] = {0}, combiner, rc;

	/* only the newer function knows types of large counts */
	if (m->call.type_get_envelope_c)
		rc = m->call.type_get_envelope_c(type, &wide[0], &wide[1], &wide[2], &wide[3], &combiner);
	else
		rc = m->call.type_get_envelope(type, &narrow[0], &narrow[1], &narrow[2], &combiner);
	return rc == MPI_SUCCEEDED && !(wide[0] | wide[1] | wide[2] | wide[3]) && !(narrow[0] | narrow[1] | narrow[2]);
}

int64_t mpi_bytes(const struct mpi *m, int64_t count, mpi_handle type)
{
	const struct mpi_type *known = mpi_find_type(m, type);
	int64_t bytes = known ? known->bytes : -1, all;

	if (count <= 0)
		return 0;
	if (!known && (m->call.type_size_x(type, &bytes) != MPI_SUCCEEDED || bytes < 0))
		return -1;
	return __builtin_mul_overflow(bytes, count, &all) ? -1 : all;
}
