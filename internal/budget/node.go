package budget

import (
	"strconv"
	"strings"
)

// Node describes the processes of a job on this machine, as a launcher reports them in the environment. Each process
// of a training has its own engine.
type Node struct {
	// Engines is the number of processes, 1 if unknown.
	Engines int
	// TaskCores is the number of cores that Slurm gives to each task. JobCores is the number that all processes have
	// together. They are 0 if unknown. Fixed is true if the number of cores was set for each process (GOMAXPROCS).
	TaskCores, JobCores int
	Fixed               bool
}

// LauncherVariables are the environment variables with the number of processes: of torchrun and its relatives, Open
// MPI, MPICH, MVAPICH, Spectrum MPI and Horovod.
var LauncherVariables = []string{
	"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", "JSM_NAMESPACE_LOCAL_SIZE",
	"HOROVOD_LOCAL_SIZE",
}

// NodeOf reads the environment variables of launchers and Slurm. engines, if not 0, is the number that the trainer
// reports. launcher returns the cores of the process that started all others, 0 if unknown. It is called only if
// needed.
func NodeOf(engines int, getenv func(name string) string, launcher func() int) Node {
	n := Node{Engines: engines, Fixed: count(getenv("GOMAXPROCS")) > 0}
	for _, name := range LauncherVariables {
		if n.Engines == 0 {
			n.Engines = count(getenv(name))
		}
	}
	if n.Engines > 0 {
		// Slurm's variables describe the launcher, which is its one task on this machine.
		if n.Engines > 1 && !n.Fixed {
			n.JobCores = max(launcher(), 0)
		}
		return n
	}
	n.Engines = 1
	// A batch script also has the variables of tasks, but is one process. Only the tasks of a step have a
	// SLURM_STEP_ID.
	if getenv("SLURM_STEP_ID") == "" && getenv("SLURM_JOB_ID") != "" {
		return n
	}
	if tasks := perNode(getenv("SLURM_STEP_TASKS_PER_NODE"), count(getenv("SLURM_NODEID"))); tasks > 0 {
		n.Engines = tasks
	} else if tasks := count(getenv("SLURM_NTASKS_PER_NODE")); tasks > 0 {
		n.Engines = tasks
	}
	n.TaskCores, n.JobCores = count(getenv("SLURM_CPUS_PER_TASK")), count(getenv("SLURM_CPUS_ON_NODE"))
	return n
}

// Threads returns the number of decode workers of one of the engines, if its process may use cores. The cores may be
// a part of the common ones. If they are the process's own, because it was bound to them (taskset, cpusets of tasks),
// it uses all of them. If several processes share them (a NUMA node), it uses its share. With parts of equal size,
// each process gets the same as if all shared all cores, and no process gets more.
func (n *Node) Threads(cores int) int {
	switch {
	case n.Fixed || n.Engines <= 1:
	case n.TaskCores > 0:
		cores = min(cores, n.TaskCores)
	default:
		cores = min(cores, max(n.JobCores, cores)/n.Engines)
	}
	return int(clamp(int64(cores), 1, MaxThreads))
}

// Automatic returns the default memory of all engines of a node: a quarter of the free memory. With little free memory,
// as in a small container, that is too little for photos. Engines then get up to leastAutomatic. What they need in
// addition to their budgets, and a quarter of the rest for the trainers, stays free.
func (n *Node) Automatic(free int64) int64 {
	rest := free - int64(max(n.Engines, 1))*Beside
	return max(free/4, min(rest/4*3, leastAutomatic))
}

// AutomaticMemory returns the default memory of one of the engines.
func (n *Node) AutomaticMemory(free int64) int64 { return n.Automatic(free) / int64(max(n.Engines, 1)) }

// count reads a whole number above zero, else 0.
func count(s string) int {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n < 0 || n > 1<<20 {
		return 0
	}
	return n
}

// perNode reads Slurm's list of tasks per node, such as "4(x2),3": four on each of
// the first two nodes, three on the last.
func perNode(list string, node int) int {
	for _, part := range strings.Split(list, ",") {
		tasks, times, repeated := strings.Cut(strings.TrimSpace(part), "(x")
		nodes := 1
		if repeated {
			nodes = count(strings.TrimSuffix(times, ")"))
		}
		if node < nodes {
			return count(tasks)
		}
		node -= nodes
	}
	return 0
}
