package budget

import (
	"strconv"
	"testing"
)

func TestEnginesOfANodeShareTheCores(t *testing.T) {
	type env = map[string]string
	for _, c := range []struct {
		name             string
		known            int // to the trainer
		env              env
		cores            int
		engines, threads int
	}{
		{"one process", 0, env{}, 16, 1, 16},
		{"torchrun", 0, env{"LOCAL_WORLD_SIZE": "8", "LOCAL_RANK": "3"}, 64, 8, 8},
		{"more ranks than cores", 0, env{"LOCAL_WORLD_SIZE": "8"}, 2, 8, 1},
		{"cores that do not divide", 0, env{"LOCAL_WORLD_SIZE": "3"}, 8, 3, 2},
		{"what the trainer knows", 4, env{}, 64, 4, 16},
		{"what the trainer knows counts more", 4, env{"LOCAL_WORLD_SIZE": "8"}, 64, 4, 16},
		{"GOMAXPROCS of each", 0, env{"LOCAL_WORLD_SIZE": "8", "GOMAXPROCS": "6"}, 6, 8, 6},
		{"Open MPI", 0, env{"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, 32, 4, 8},
		{"MVAPICH", 0, env{"MV2_COMM_WORLD_LOCAL_SIZE": "4"}, 32, 4, 8},
		{"MPICH", 0, env{"MPI_LOCALNRANKS": "2"}, 32, 2, 16},
		{"Slurm, all cores seen", 0, env{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS_PER_NODE": "4", "SLURM_CPUS_ON_NODE": "64"}, 64, 4, 16},
		{"Slurm, bound to its part", 0, env{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS_PER_NODE": "4", "SLURM_CPUS_ON_NODE": "64"}, 16, 4, 16},
		{"Slurm, cores per task", 0, env{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS_PER_NODE": "4", "SLURM_CPUS_PER_TASK": "12", "SLURM_CPUS_ON_NODE": "64"}, 64, 4, 12},
		{"Slurm, another number per node", 0, env{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "2"}, 64, 3, 21},
		{"Slurm, the step counts more than the job", 0, env{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_NTASKS_PER_NODE": "8"}, 64, 2, 32},
		{"a batch script of Slurm", 0, env{"SLURM_JOB_ID": "7", "SLURM_NTASKS_PER_NODE": "8"}, 64, 1, 64},
		{"torchrun as a task of Slurm", 0, env{"LOCAL_WORLD_SIZE": "8", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS_PER_NODE": "1", "SLURM_CPUS_PER_TASK": "64"}, 64, 8, 8},
		{"nonsense", 0, env{"LOCAL_WORLD_SIZE": "many", "SLURM_STEP_TASKS_PER_NODE": "x(x", "SLURM_NODEID": "-1"}, 8, 1, 8},
		{"nothing to divide", 0, env{"LOCAL_WORLD_SIZE": "0"}, 8, 1, 8},
	} {
		n := NodeOf(c.known, func(name string) string { return c.env[name] }, func() int { return 0 })
		if n.Engines != c.engines || n.Threads(c.cores) != c.threads {
			t.Errorf("%s: %d engines of %d threads, want %d of %d", c.name, n.Engines, n.Threads(c.cores), c.engines, c.threads)
		}
	}
}

// A process that is bound to its own cores uses all of them. Processes that share a mask divide it.
func TestCoresThatProcessesAreBoundTo(t *testing.T) {
	slurm := map[string]string{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS_PER_NODE": "4", "SLURM_CPUS_ON_NODE": "64"}
	for _, c := range []struct {
		name            string
		engines         int
		cores, launcher int
		want            int
	}{
		{"not bound", 8, 64, 64, 8},
		{"to its part", 8, 8, 64, 8},
		{"to less than its part", 8, 6, 64, 6},
		{"four to each of two NUMA nodes", 8, 32, 64, 8},
		{"one to each of two NUMA nodes", 2, 32, 64, 32},
		{"to one core", 2, 1, 64, 1},
		{"with the launcher, all to the same", 4, 8, 8, 2},
		{"to one of the launcher's, which is bound itself", 4, 2, 8, 2},
		{"to more than the launcher", 4, 64, 8, 16},
		{"more processes than cores", 8, 2, 2, 1},
		{"by a launcher that is not known", 4, 8, 0, 2},
	} {
		env := map[string]string{"LOCAL_WORLD_SIZE": strconv.Itoa(c.engines)}
		n := NodeOf(0, func(name string) string { return env[name] }, func() int { return c.launcher })
		if got := n.Threads(c.cores); got != c.want {
			t.Errorf("%s: %d engines, %d cores of %d: %d threads, want %d", c.name, c.engines, c.cores, c.launcher, got, c.want)
		}
	}
	n := NodeOf(0, func(name string) string { return slurm[name] }, func() int { panic("Slurm says it itself") })
	if got := n.Threads(32); got != 16 {
		t.Errorf("two tasks of Slurm on each of two NUMA nodes: %d threads, want 16", got)
	}
	one := NodeOf(1, func(string) string { return "" }, func() int { panic("there is nothing to divide") })
	if got := one.Threads(8); got != 8 {
		t.Errorf("one process: %d threads", got)
	}
}

// The engines of a machine get a quarter of its free memory. In a small container they get more, and what they
// need in addition to their budgets also fits.
func TestAutomaticMemory(t *testing.T) {
	for free := int64(1 << 20); free < 64<<30; free += free/7 + 1 {
		for _, engines := range []int{1, 2, 8} {
			n := Node{Engines: engines}
			all := n.Automatic(free)
			if all < free/4 || all > max(free/4, leastAutomatic) || n.AutomaticMemory(free) != all/int64(engines) {
				t.Errorf("%d engines and %d MiB free: %d MiB", engines, free>>20, all>>20)
			}
			if all > free/4 && all+int64(engines)*Beside > free {
				t.Errorf("%d engines and %d MiB free: %d MiB, and the rest does not fit", engines, free>>20, all>>20)
			}
		}
	}
	if n := (Node{Engines: 1}); n.Automatic(226<<20) < 120<<20 || n.Automatic(32<<30) != 8<<30 {
		t.Errorf("%d MiB in a container of 256 MiB, %d MiB of 32 GiB", n.Automatic(226<<20)>>20, n.Automatic(32<<30)>>20)
	}
}
