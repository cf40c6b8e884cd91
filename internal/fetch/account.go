package fetch

// account counts the bytes and the units that wait for reads or hold what was read. Only its methods change the
// counters. Fetcher.mu guards it.
type account struct {
	// planned limits used, ahead and transit together. mostUrgent limits urgent.
	planned, mostUrgent int64
	// used is reserved by units and by values that are read in order. urgent is reserved by units that could not be
	// planned, so that they never wait for others.
	used, urgent int64
	// attached is the part of used that belongs to units with a batch.
	attached int64
	// ahead is held by records that were read ahead for units that are not admitted yet. transit is the memory of the
	// reads under way that bring such records.
	ahead, transit int64
	peak           int64 // of inUse
	units          int   // admitted and not released
}

// inUse returns the number of bytes in use.
func (a *account) inUse() int64 { return a.used + a.urgent + a.ahead + a.transit }

// reserve takes the memory that a unit needs, from the urgent part or from the planned one.
func (a *account) reserve(u *Unit, urgent bool) {
	u.reserved, u.rushed = u.need, urgent
	if urgent {
		a.urgent += u.reserved
	} else {
		a.used += u.reserved
		if u.attached {
			a.attached += u.reserved
		}
	}
	a.note()
}

// attach counts a unit as part of a batch.
func (a *account) attach(u *Unit) {
	u.attached = true
	if !u.rushed {
		a.attached += u.reserved
	}
}

// admit counts a unit that is on its way.
func (a *account) admit(u *Unit) {
	u.admitted = true
	a.units++
}

// release returns the memory of a unit. It may not be admitted.
func (a *account) release(u *Unit) {
	if u.rushed {
		a.urgent -= u.reserved
	} else {
		a.used -= u.reserved
		if u.attached {
			a.attached -= u.reserved
		}
	}
	u.reserved = 0
	if u.admitted {
		a.units--
	}
}

// take reserves n bytes for a value that is read in order. give returns bytes whose record belongs to no unit yet.
func (a *account) take(n int64) {
	a.used += n
	a.note()
}

func (a *account) give(n int64) { a.used -= n }

// begin and end count the memory of an attempt that brings more than is needed.
func (a *account) begin(fl *attempt, n int64) {
	fl.brief = n
	a.transit += n
	a.note()
}

func (a *account) end(fl *attempt) {
	a.transit -= fl.brief
	fl.brief = 0
}

// hold adds a record to the memory of records that were read ahead for a unit, and drop removes it. dropAll removes all
// records of the unit.
func (a *account) hold(u *Unit, size int64) {
	a.ahead += pieceBytes(size)
	u.ahead += pieceBytes(size)
	a.note()
}

func (a *account) drop(u *Unit, size int64) {
	a.ahead -= pieceBytes(size)
	u.ahead -= pieceBytes(size)
}

func (a *account) dropAll(u *Unit) {
	a.ahead -= u.ahead
	u.ahead = 0
}

// note keeps the maximum.
func (a *account) note() { a.peak = max(a.peak, a.inUse()) }
