// Caffe2's MPI operators for CPUs. PyTorch's wheel has them as templates in headers, but was built without MPI: here they
// are instantiated and registered as the engine MPI, with the few lines that the headers declare and leave to a library.
// Load it with caffe2.python.dyndep, after mpi4py has initialised MPI.
//
// MPI_CHECK in mpi_common.h holds one mutex of the process around every MPI call, also while it waits for other ranks. So
// a process never has two collectives under way, also not on two communicators, and ranks that start two collectives in
// different orders wait for each other for good: each holds the mutex that the other collective needs. One order on all
// ranks takes max_concurrent_distributed_ops=1 in data_parallel_model, which chains its allreduces, and no second net that
// runs collectives beside it. The mutex does not see calls from elsewhere, such as mpi4py's: those beside a running net
// take MPI_THREAD_MULTIPLE. In a net of type "dag" the calls come from Caffe2's threads and not from the one that
// initialised MPI, which takes MPI_THREAD_SERIALIZED.
//
// Use all of them in place. For an Allreduce into another blob the wheel's check of operators ends the process.

#include "caffe2/core/macros.h"
#undef CAFFE2_USE_MKL  // or a header asks for MKL's, for the names of matrix layouts, which Caffe2 has as well
#include "caffe2/mpi/mpi_ops.h"

// The headers expect this in the library, but the wheel does not export it.
template const std::string& google::protobuf::RepeatedPtrField<std::string>::Get(int) const;

namespace caffe2 {

CAFFE_KNOWN_TYPE(MPICommonWorldWrapper);

std::mutex& MPIMutex() {
  static std::mutex mutex;
  return mutex;
}

// What CreateCommonWorld splits its communicator from.
MPI_Comm GlobalMPIComm() {
  CheckInitializedMPI();  // or MPI would end the process without a word of Caffe2's
  return MPI_COMM_WORLD;
}

namespace {

// What data_parallel_model uses. A clone is a new communicator of the same ranks, as is a created one, which ignores inputs.
REGISTER_CPU_OPERATOR_WITH_ENGINE(CreateCommonWorld, MPI, MPICreateCommonWorldOp<CPUContext>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(CloneCommonWorld, MPI, MPICreateCommonWorldOp<CPUContext>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(Broadcast, MPI, MPIBroadcastOp<CPUContext>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(Allreduce, MPI, MPIAllreduceOp<float, CPUContext>);

}  // namespace
}  // namespace caffe2
