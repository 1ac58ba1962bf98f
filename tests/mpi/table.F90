! SPDX-License-Identifier: Apache-2.0
! A Fortran program that checks every element of its all-reduces and broadcasts. WAY is how
! it knows MPI: 1 mpif.h, 2 use mpi, 3 use mpi_f08. Rank 0 prints "begun" and "ok". With an
! argument it does the same again for 4 s, and rank 0 prints each round.
program table
#if WAY == 1
  implicit none
  include 'mpif.h'
#elif WAY == 2
  use mpi
  implicit none
#else
  use mpi_f08
  implicit none
#endif
  integer, parameter :: n = 100003
  double precision, parameter :: seconds = 4
  integer :: rank, world, i, ierr, checks, rounds, go
  double precision :: start
#if WAY == 3
  type(MPI_Request) :: request
#else
  integer :: request
#endif
  integer, allocatable :: whole(:)
  real, allocatable :: single(:), summed(:)
  double precision, allocatable :: wide(:)
  complex, allocatable :: pairs(:)

  call MPI_Init_thread(MPI_THREAD_MULTIPLE, i, ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, world, ierr)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  if (rank == 0) print '(a)', 'begun'
  flush(6)
  checks = 0
  allocate(whole(n), single(n), summed(n), wide(n), pairs(n))
  start = MPI_Wtime()
  rounds = 0
  do
    call calls()
    if (command_argument_count() <= 0) exit
    if (rank == 0) print '(a, i0)', 'round ', rounds
    flush(6)
    rounds = rounds + 1
    go = merge(1, 0, MPI_Wtime() < start + seconds)
    call MPI_Bcast(go, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
    if (go == 0) exit
  end do
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  if (rank == 0) print '(a, i0, a)', 'ok ', checks, ' checks'
  flush(6)
  call MPI_Finalize(ierr)
contains
  subroutine calls()
    single = [(real(rank + mod(i, 5)), i = 1, n)]
    call MPI_Allreduce(single, summed, n, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierr)
    call check(all(summed == [(real(world * (world - 1) / 2 + world * mod(i, 5)), i = 1, n)]))
    whole = rank
    call MPI_Allreduce(MPI_IN_PLACE, whole, n, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierr)
    call check(all(whole == world - 1))
    wide = 2
    call MPI_Iallreduce(MPI_IN_PLACE, wide, n, MPI_DOUBLE_PRECISION, MPI_PROD, MPI_COMM_WORLD, request, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call check(all(wide == 2d0 ** world))
    pairs = (1, 2)
    call MPI_Allreduce(MPI_IN_PLACE, pairs, n, MPI_COMPLEX, MPI_SUM, MPI_COMM_WORLD, ierr)
    call check(all(pairs == cmplx(world, 2 * world)))
    wide = merge([(dble(i), i = 1, n)], 0d0, rank == world - 1)
    call MPI_Bcast(wide, n, MPI_DOUBLE_PRECISION, world - 1, MPI_COMM_WORLD, ierr)
    call check(all(wide == [(dble(i), i = 1, n)]))
    whole(1:2) = rank
    call MPI_Allreduce(MPI_IN_PLACE, whole, 2, MPI_INTEGER, MPI_MIN, MPI_COMM_WORLD, ierr)
    call check(whole(1) == 0)
  end subroutine calls

  subroutine check(right)
    logical, intent(in) :: right
    checks = checks + 1
    if (right) return
    print '(a, i0, a, i0)', 'wrong: check ', checks, ' of rank ', rank
    call MPI_Abort(MPI_COMM_WORLD, 3, ierr)
  end subroutine check
end program
