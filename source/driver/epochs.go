package driver

// Epochs is implemented by sources whose records are others in each epoch, though
// always Info.Len of them, such as sequences cut out of documents whose order
// changes. Their records are asked for by numbers that InEpoch makes.
type Epochs interface {
	Source
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

// EpochsOf says whether records of a source are others in each epoch: whether it is an
// Epochs, or one of those that have its records, such as a view of one.
func EpochsOf(s Source) bool {
	if e, ok := s.(interface{ InEpochs() bool }); ok {
		return e.InEpochs()
	}
	_, ok := s.(Epochs)
	return ok
}

// Seeded is implemented by sources that draw what their records are in an epoch.
type Seeded interface {
	// Seed is called before anything is read. Without it the seed is 0.
	Seed(seed uint64)
}

// SeedOf gives a source its seed, where it takes one.
func SeedOf(s Source, seed uint64) {
	if x, ok := s.(Seeded); ok {
		x.Seed(seed)
	}
}
