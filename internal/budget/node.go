package budget

import (
	"strconv"
	"strings"
)

// Node is what a launcher says, in the environment, of the processes of a job on
// this machine. Each process of a training has an engine of its own.
type Node struct {
	// Engines is the number of processes, 1 where nobody says.
	Engines int
	// TaskCores are those that Slurm gives to each task, JobCores those that all
	// processes have together; 0 where nobody says. Fixed says that the number of
	// cores was set for each process (GOMAXPROCS).
	TaskCores, JobCores int
	Fixed               bool
}

// LauncherVariables are those that say how many processes there are, in the
// environment of each: of torchrun and its relatives, Open MPI, MPICH, MVAPICH, Spectrum MPI and Horovod.
var LauncherVariables = []string{
	"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", "JSM_NAMESPACE_LOCAL_SIZE",
	"HOROVOD_LOCAL_SIZE",
}

// NodeOf reads the environment that launchers and Slurm make. engines, when it is
// not 0, is what the trainer knows. launcher is asked for the cores of the process
// that has started them all, 0 where they are not known, when that matters.
func NodeOf(engines int, getenv func(name string) string, launcher func() int) Node {
	n := Node{Engines: engines, Fixed: count(getenv("GOMAXPROCS")) > 0}
	for _, name := range LauncherVariables {
		if n.Engines == 0 {
			n.Engines = count(getenv(name))
		}
	}
	if n.Engines > 0 {
		// Whatever Slurm says is of the launcher, which is its one task on this machine.
		if n.Engines > 1 && !n.Fixed {
			n.JobCores = max(launcher(), 0)
		}
		return n
	}
	n.Engines = 1
	// A batch script has the variables of tasks, too, but is one process: only the
	// tasks of a step have a SLURM_STEP_ID.
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

// Threads is the number of decode workers of one of the engines, when its process
// may use cores. They may be a part of what all have together: its own, since it
// was bound to them (taskset, cpusets of tasks), which it keeps; or that of some of
// the processes (a NUMA node), which share it. Where the parts are equally large
// each process has as much as if all shared all, and that is what none passes.
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

// AutomaticMemory is what one of the engines takes when nobody chose: its part of
// a quarter of the free memory.
func (n *Node) AutomaticMemory(free int64) int64 { return free / 4 / int64(max(n.Engines, 1)) }

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
