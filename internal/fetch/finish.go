package fetch

import "time"

// begin registers a read that begins. The caller holds the lock.
func (f *Fetcher) begin(fl *attempt) {
	fl.since = time.Now()
	fl.out++
	fl.newest = fl
	if !fl.second {
		f.stats.requests.Add(1)
	}
	f.running.begin(fl)
	f.ledger.begin(fl)
	f.watch()
}

// finish handles a read that has ended. full reports that the limit of concurrent reads was reached. The caller holds
// the lock.
func (f *Fetcher) finish(fl *attempt, now time.Time, full bool, err error) {
	took := now.Sub(fl.since)
	f.stats.busy.Add(int64(took))
	f.running.end(fl)
	if !fl.second {
		f.learnFrom(fl, now, took, full, err)
	}
	if fl.readahead && err == nil && !fl.done {
		err = f.sortOut(fl)
	}
	f.deliver(fl, err)
}

// learnFrom lets the tuners learn from a first attempt that has ended.
func (f *Fetcher) learnFrom(fl *attempt, now time.Time, took time.Duration, full bool, err error) {
	f.hedge.ended(took, fl.size)
	if err != nil {
		return
	}
	busy := full && f.queues.len() > 0
	enough := f.prefetchesEnough()
	tries := enough && f.readahead.undecided()
	if enough && f.readahead.ended(now, fl.size, f.running.count(), busy) {
		f.depth.leave() // one thing at a time
	}
	if f.depth.ended(now, took, fl.size, max(fl.weight/wholeRead, 1), busy && !tries) {
		f.wakeFor(min(f.mostReads()-f.running.count(), f.queues.len()))
	}
	f.gaps.ended(now, took, fl.size)
	f.queues.view.gap = f.gaps.most()
}

// deliver passes the bytes to the extents of an attempt. The caller holds the lock.
func (f *Fetcher) deliver(fl *attempt, err error) {
	fl.out--
	f.ledger.end(fl)
	switch {
	case fl.done:
	case fl.cancel != nil:
		f.deliverPlaced(fl, err)
	case err != nil && fl.out > 0:
		// Another one may still succeed.
	case err != nil && len(fl.extents) > 1 && fl.ctx.Err() == nil:
		// Read them one by one, so that only the bad ones fail.
		fl.done = true
		for _, w := range fl.extents {
			if w.later && !w.u.admitted {
				f.forget(w.u, w.i) // it is read when it is admitted
				continue
			}
			c := f.queues.spare.take()
			*c = *w
			c.alone, c.later, c.taken, c.next = true, false, false, [2]*extent{}
			f.queues.push(c, true)
		}
		f.wakeFor(len(fl.extents))
	default:
		fl.done = true
		for k, w := range fl.extents {
			switch {
			case w.x != nil:
				f.learnt(w, err)
			case fl.pieces != nil:
				f.giveOwn(w, fl.pieces[k])
			default:
				f.give(fl, w, err)
			}
		}
	}
	if fl.bl != nil {
		f.mem.release(fl.bl)
	}
	if fl.brief > 0 {
		f.account.end(fl)
		signal(f.space)
	}
}

// deliverPlaced is deliver for a read straight into the batch. No attempt may write to that memory after delivery. So
// the result of a hedged read waits until the first attempt has ended, which takes little time after its cancellation.
func (f *Fetcher) deliverPlaced(fl *attempt, err error) {
	g, w := fl.request, fl.extents[0]
	switch {
	case fl.dst != nil:
		g.ended = true
		g.cancel()
	case err == nil && g.won == nil:
		g.won = fl.bl
		fl.bl.refs++
		g.cancel()
	}
	switch {
	case fl.dst != nil && err == nil:
	case g.ended && g.won != nil:
		copy(w.dst, g.won.b)
		err = nil
	case err != nil && fl.out == 0:
	default:
		return // it is not over
	}
	g.done = true
	if g.won != nil {
		f.mem.release(g.won)
		g.won = nil
	}
	if w.x != nil {
		f.learnt(w, err)
	} else {
		f.give(fl, w, err)
	}
}

func (f *Fetcher) give(fl *attempt, w *extent, err error) {
	u := w.u
	switch {
	case w.later && !u.admitted: // it has failed
		f.forget(u, w.i)
		return
	case err != nil:
		if rec := &u.Records[u.recordOf(w.i)]; rec.Err == nil {
			rec.Err = err
		}
	case w.dst == nil:
		at := w.off - fl.off
		u.Bytes[w.i] = fl.bl.b[at : at+w.size : at+w.size]
		u.blocks[w.i] = fl.bl
		fl.bl.refs++
	}
	f.arrived(u)
}

// learnt informs the units that wait for a piece of the index.
func (f *Fetcher) learnt(w *extent, err error) {
	delete(f.queues.pieces, [2]int64{w.x.Object, w.x.Offset})
	for _, wt := range w.x.waiters {
		u := wt.u
		if err != nil && u.readErrs[wt.k] == nil {
			u.readErrs[wt.k] = err
		}
		if u.missing--; u.missing == 0 && u.dropped {
			*u = Unit{}
		}
	}
	signal(f.space)
}
