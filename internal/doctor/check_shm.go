package doctor

// shmCheck warns of a full /dev/shm.
type shmCheck struct{ remedy }

func (shmCheck) about() about { return about{name: "shm"} }

func (shmCheck) advise(f *findings) {
	if full := f.per(gShm); full > 0.8 {
		f.add(1, "give the container more shared memory", other("docker run --shm-size=8g ..."),
			"/dev/shm is %.0f%% full; workers die with a bus error when it is", 100*full)
	}
}
