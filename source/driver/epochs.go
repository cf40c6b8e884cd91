package driver

// Epochs is implemented by sources whose records differ per epoch, for example sequences made from
// documents in random order. The number of records is always Info.Len. Record numbers are made by
// InEpoch.
type Epochs interface {
	// EpochRecords does nothing. It marks the type.
	EpochRecords()
}

// epochShift is the first bit of the epoch in a record number. It is above all numbers that
// Info.Len allows.
const (
	epochShift = 40
	epochMask  = 1<<(63-epochShift) - 1
)

// InEpoch returns the number of a record in an epoch. Epochs repeat after 2^23.
func InEpoch(epoch, id int64) int64 { return (epoch&epochMask)<<epochShift | id }

// OfEpoch is the inverse of InEpoch. For numbers that InEpoch did not make, the epoch is 0.
func OfEpoch(n int64) (epoch, id int64) { return n >> epochShift, n & (1<<epochShift - 1) }

// EpochsOf reports whether the records of a source differ per epoch.
func EpochsOf(s Source) bool {
	_, ok := As[Epochs](s)
	return ok
}

// Seeded is implemented by sources that use random numbers to make the records of an epoch.
type Seeded interface {
	// Seed is called before the first read. The default seed is 0.
	Seed(seed uint64)
}

// SeedOf passes the seed to a source, if the source is Seeded.
func SeedOf(s Source, seed uint64) {
	if x, ok := As[Seeded](s); ok {
		x.Seed(seed)
	}
}
