package driver

// Epochs is implemented by sources whose records are others in each epoch, though
// always Info.Len of them, such as sequences cut out of documents whose order
// changes. Their records are asked for by numbers that InEpoch makes.
type Epochs interface {
	// EpochRecords has no other purpose than to say so.
	EpochRecords()
}

// epochShift is where the epoch begins in the number of a record: above all that
// Info.Len allows.
const (
	epochShift = 40
	epochMask  = 1<<(63-epochShift) - 1
)

// InEpoch is the number of a record in an epoch. Epochs come again after 2^23.
func InEpoch(epoch, id int64) int64 { return (epoch&epochMask)<<epochShift | id }

// OfEpoch is the reverse of InEpoch. Of numbers that InEpoch did not make, the epoch
// is 0.
func OfEpoch(n int64) (epoch, id int64) { return n >> epochShift, n & (1<<epochShift - 1) }

// EpochsOf reports whether the records of a source differ per epoch.
func EpochsOf(s Source) bool {
	_, ok := As[Epochs](s)
	return ok
}

// Seeded is implemented by sources that draw random numbers for what their records are in an
// epoch.
type Seeded interface {
	// Seed is called before anything is read. Without a call the seed is 0.
	Seed(seed uint64)
}

// SeedOf passes the seed to a source, if the source is Seeded.
func SeedOf(s Source, seed uint64) {
	if x, ok := As[Seeded](s); ok {
		x.Seed(seed)
	}
}
