package budget

import "testing"

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
		n := NodeOf(c.known, func(name string) string { return c.env[name] })
		if n.Engines != c.engines || n.Threads(c.cores) != c.threads {
			t.Errorf("%s: %d engines of %d threads, want %d of %d", c.name, n.Engines, n.Threads(c.cores), c.engines, c.threads)
		}
	}
}
