package fetch

import (
	"context"
	"time"
)

// attempt is one read under way. A late read has more than one attempt for the same extents.
type attempt struct {
	*request
	at                int // in running.attempts
	object, off, size int64
	bl                *block // destination, nil for dst
	dst               []byte
	ctx               context.Context
	since             time.Time
	second            bool  // a hedged read
	weight            int   // its part of running.load
	brief             int64 // its part of account.transit
	learns            bool  // counted in running.learning
	stuck             bool  // the first attempt, which is late and was repeated
}

// request is a set of extents that one or more attempts read.
type request struct {
	extents []*extent
	out     int // attempts under way
	done    bool
	again   int      // repeated attempts
	newest  *attempt // the attempt that began last

	// readahead reports that the read brings more than is needed. Each of its extents then gets its own piece of
	// memory.
	readahead bool
	pieces    []*block

	// The next fields are for a read straight into the batch, which one attempt alone writes to. Cancel ends that
	// attempt, ended reports that it has ended, and won is the result of a hedged read.
	cancel context.CancelFunc
	ended  bool
	won    *block
}

// running lists the reads under way and their weight, which depth limits.
type running struct {
	remote   bool
	attempts []*attempt
	// second counts hedged reads, and stuck first attempts that are late and were repeated. Neither delays other reads.
	second, stuck int
	// load is the weight of the other attempts, in parts of a read. Reads of a remote index are counted in learning
	// instead.
	load, learning int
	last           Turn // of the read that began last
}

// count returns the number of attempts that count for the depth.
func (r *running) count() int { return len(r.attempts) - r.second - r.stuck }

// begin adds an attempt.
func (r *running) begin(fl *attempt) {
	if fl.second {
		r.second++
	} else {
		r.weigh(fl)
	}
	fl.at = len(r.attempts)
	r.attempts = append(r.attempts, fl)
}

// weigh adds the weight of a first attempt.
func (r *running) weigh(fl *attempt) {
	w := fl.extents[0]
	switch {
	case !r.remote:
		fl.weight = wholeRead
	case w.x != nil && !w.rush:
		fl.learns = true
		r.learning++
		return
	case fl.size <= smallBytes || fl.size <= halfBytes && w.u != nil && w.u.Awaited:
		fl.weight = smallRead
	case fl.size <= halfBytes:
		fl.weight = halfRead
	default:
		fl.weight = wholeRead * int((fl.size+largeBytes-1)/largeBytes)
	}
	r.load += fl.weight
	if w.u != nil && !w.rush {
		r.last = w.u.Turn
	}
}

// unweigh removes the weight of a first attempt.
func (r *running) unweigh(fl *attempt) {
	r.load -= fl.weight
	if fl.learns {
		r.learning--
	}
}

// late counts an attempt that is late and will be repeated. It delays no other read any more.
func (r *running) late(fl *attempt) {
	if !fl.second {
		fl.stuck = true
		r.stuck++
		r.unweigh(fl)
	}
}

// end removes an attempt.
func (r *running) end(fl *attempt) {
	last := len(r.attempts) - 1
	r.attempts[fl.at], r.attempts[last].at = r.attempts[last], fl.at
	r.attempts[last] = nil
	r.attempts = r.attempts[:last]
	switch {
	case fl.second:
		r.second--
	case fl.stuck:
		r.stuck--
	default:
		r.unweigh(fl)
	}
}
