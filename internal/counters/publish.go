package counters

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Every is the interval at which an engine writes its counters.
const Every = 100 * time.Millisecond

// Publisher writes the counters of one pipeline until it is closed. It owns one
// goroutine.
type Publisher struct {
	f       *os.File
	counted func() Counters
	state   Snapshot
	seq     uint64
	buf     [headerSize + 8*numCounters]byte
	stop    chan struct{}
	once    sync.Once
	done    chan struct{}
}

// Publish starts to write the results of counted for the pipeline that serves process client (0 if not known). counted
// is called from one goroutine until Close has returned.
func Publish(client int, counted func() Counters) (*Publisher, error) {
	fd, err := unix.MemfdCreate(Name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	p := &Publisher{
		f: os.NewFile(uintptr(fd), Name), counted: counted,
		state: Snapshot{Engine: os.Getpid(), Client: client, Opened: now()},
		stop:  make(chan struct{}), done: make(chan struct{}),
	}
	if err := p.write(); err != nil {
		p.f.Close()
		return nil, err
	}
	go p.loop()
	return p, nil
}

func (p *Publisher) loop() {
	defer close(p.done)
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			// Memory that was written once can always be written again.
			_ = p.write()
		}
	}
}

// write puts the counters between two numbers: an odd one while they are being
// written, and the next even one.
func (p *Publisher) write() error {
	p.state.Counters = p.counted()
	p.state.At = now()
	p.state.encode(p.buf[:])
	le.PutUint64(p.buf[seqAt:], p.seq+1)
	if _, err := p.f.WriteAt(p.buf[seqAt:seqAt+8], seqAt); err != nil {
		return err
	}
	if _, err := p.f.WriteAt(p.buf[:], 0); err != nil {
		return err
	}
	p.seq += 2
	le.PutUint64(p.buf[seqAt:], p.seq)
	_, err := p.f.WriteAt(p.buf[seqAt:seqAt+8], seqAt)
	return err
}

// Close stops the writing and removes the counters.
func (p *Publisher) Close() error {
	var err error
	p.once.Do(func() {
		close(p.stop)
		<-p.done
		err = p.f.Close()
	})
	return err
}
