package sampler

import "slices"

// Chain is a set of items of different sizes, such as chunks of records or documents of tokens. Each epoch joins them in
// another order. Finding the item at an offset takes the same small work anywhere in an epoch: nothing is added up from
// its beginning.
//
// The items form a tree of nodes with up to f children. Node r of level l has the items that equal r modulo f^l, so
// neighbours are in different nodes. Its size is the same in each epoch. An epoch permutes the children of each node, and
// only the nodes on the way to an item are looked at. Up to maxFanout items give one permutation.
type Chain struct {
	n, f int64
	size func(item int64) int64
	// sums has the sizes of the nodes of each level. The last level has items, whose sizes come from size.
	sums [][]int64
}

// looked is called with the number of children whose order was computed. Tests count the work.
var looked = func(children int64) {}

// The limits of the number of children. The lower one is more than 1 << tinyBits, so that a permutation takes few rounds.
const minFanout, maxFanout = 257, 512

// NewChain returns a chain of n items.
func NewChain(n int64, size func(item int64) int64) *Chain {
	return newChain(n, size, minFanout, maxFanout)
}

func newChain(n int64, size func(item int64) int64, low, high int64) *Chain {
	levels := 1
	for reach := high; reach < n; reach *= high {
		levels++
	}
	c := &Chain{n: n, size: size, f: low}
	for power(c.f, levels) < n {
		c.f++
	}
	for l := range levels {
		c.sums = append(c.sums, make([]int64, min(power(c.f, l), n)))
	}
	last := c.sums[len(c.sums)-1]
	for item, node := int64(0), 0; item < n; item++ {
		last[node] += size(item)
		if node++; node == len(last) {
			node = 0
		}
	}
	for l := len(c.sums) - 2; l >= 0; l-- {
		for r, sum := range c.sums[l+1] {
			c.sums[l][r%len(c.sums[l])] += sum
		}
	}
	return c
}

// power returns f to the l-th power.
func power(f int64, l int) int64 {
	p := int64(1)
	for range l {
		p *= f
	}
	return p
}

// Total returns the size of all items.
func (c *Chain) Total() int64 {
	if c.n == 0 {
		return 0
	}
	return c.sums[0][0]
}

// links are the children of a node in the order of an epoch: child order.At(i) is at the offsets [at[i], at[i+1]) of the
// node. The item or node of child j is r + j*width.
type links struct {
	order    Order
	r, width int64
	at       []int64
}

func (k *links) child(i int) int64 { return k.r + k.order.At(int64(i))*k.width }

// ChainEpoch is the order of one epoch. It does not change, so goroutines may share it.
type ChainEpoch struct {
	c     *Chain
	seed  uint64
	epoch int64
	root  *links
}

// Epoch returns the order of an epoch.
func (c *Chain) Epoch(seed uint64, epoch int64) *ChainEpoch {
	e := &ChainEpoch{c: c, seed: seed, epoch: epoch}
	e.root = e.links(0, 0)
	return e
}

// links returns the children of node r of level l.
func (e *ChainEpoch) links(l int, r int64) *links {
	if l == 0 && e.root != nil {
		return e.root
	}
	k := &links{r: r, width: power(e.c.f, l)}
	children := (e.c.n - r + k.width - 1) / k.width
	last := l == len(e.c.sums)-1
	if !last {
		children = min(children, e.c.f)
	}
	seed := e.seed
	if l > 0 {
		seed = mix64(e.seed + uint64(r+1)*golden + uint64(l))
	}
	looked(children)
	k.order = NewOrder(children, true, seed, e.epoch)
	k.at = make([]int64, children+1)
	k.order.Fill(k.at[1:], 0)
	for i, j := range k.at[1:] {
		child := r + j*k.width
		if last {
			k.at[i+1] = k.at[i] + e.c.size(child)
		} else {
			k.at[i+1] = k.at[i] + e.c.sums[l+1][child]
		}
	}
	return k
}

// Start returns the offset of an item.
func (e *ChainEpoch) Start(item int64) int64 {
	start := int64(0)
	for l := range e.c.sums {
		width := int64(len(e.c.sums[l]))
		k := e.links(l, item%width)
		start += k.at[k.order.Find(item%(width*e.c.f)/width)]
	}
	return start
}

// Cursor walks along the items of an epoch. The zero Cursor is not valid.
type Cursor struct {
	e     *ChainEpoch
	leaf  *links
	start int64 // of the leaf
	i     int
}

// Find returns a cursor at the item with an offset, which is less than Total.
func (e *ChainEpoch) Find(offset int64) Cursor {
	at, r := offset, int64(0)
	for l := 0; ; l++ {
		k := e.links(l, r)
		// The first one that ends after the offset: items may be empty.
		i, _ := slices.BinarySearchFunc(k.at[1:], at, func(end, at int64) int {
			if end > at {
				return 1
			}
			return -1
		})
		if l == len(e.c.sums)-1 {
			return Cursor{e: e, leaf: k, start: offset - at, i: i}
		}
		at -= k.at[i]
		r = k.child(i)
	}
}

// Item returns the item.
func (c *Cursor) Item() int64 { return c.leaf.child(c.i) }

// Bounds returns the offsets at which the item begins and ends.
func (c *Cursor) Bounds() (from, to int64) {
	return c.start + c.leaf.at[c.i], c.start + c.leaf.at[c.i+1]
}

// Next moves to the next item that is not empty. It returns false at the end of the epoch.
func (c *Cursor) Next() bool {
	for i := c.i + 1; i+1 < len(c.leaf.at); i++ {
		if c.leaf.at[i+1] > c.leaf.at[i] {
			c.i = i
			return true
		}
	}
	end := c.start + c.leaf.at[len(c.leaf.at)-1]
	if end >= c.e.c.Total() {
		return false
	}
	*c = c.e.Find(end)
	return true
}
