package plan

import (
	"fmt"
	"math"
	"strings"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/units"
)

// GetPrice is the price of a million read requests to a bucket.
type GetPrice struct {
	// Scheme is the scheme of the URLs.
	Scheme string
	// PerMillion is in US dollars.
	PerMillion float64
	Source     string
}

// GetPrices returns prices from public sources, looked up in November 2026 in the places that Source names. These are
// not the vendors' current price lists. Prices are for one region and class, and change: --price-per-million-gets
// sets another one.
func GetPrices() []GetPrice {
	return []GetPrice{
		{"s3", 0.40, "Amazon S3 Standard, US East, as commonly cited (2026-11): $0.0004 per 1,000 GETs"},
		{"gs", 0.40, "Google Cloud Storage Standard, us-east1, by Google's pricing examples (cloud.google.com/storage/pricing-examples, seen 2026-11): $0.0004 per 1,000 operations of class B"},
		{"az", 0.44, "Azure Blob Storage, hot, by the sample prices of Microsoft's \"Estimate the cost of using Azure Blob Storage\" (2024-07-26, seen 2026-11), which it calls an example: $0.0044 per 10,000 reads"},
	}
}

// rangeBytes is the most that one request reads.
const rangeBytes = 8 << 20

// BucketCost is the load of an epoch on a bucket, without cached data. It does not include the price per byte of
// traffic that leaves the bucket's region.
type BucketCost struct {
	// Requests is the number of requests of an epoch with a full permutation: one for each record, or more for large
	// ones. RequestsWindow is the number with a shuffle buffer of chunks, 0 if the data has no chunks.
	Requests       int64 `json:"requests"`
	RequestsWindow int64 `json:"requests_window,omitempty"`
	Bytes          int64 `json:"bytes"`
	// PerMillion is the price used, in US dollars, and Price the price of an epoch. They are 0 if unknown.
	PerMillion  float64 `json:"price_per_million_gets,omitempty"`
	Price       float64 `json:"price,omitempty"`
	PriceWindow float64 `json:"price_window,omitempty"`
	Source      string  `json:"source,omitempty"`
	// Seconds is the time for the reads of an epoch alone, with a full permutation. SecondsWindow is the time with a
	// shuffle buffer of chunks. They are 0 if the server was not measured.
	Seconds       float64 `json:"seconds,omitempty"`
	SecondsWindow float64 `json:"seconds_window,omitempty"`
}

// InBucket returns the scheme of a path and reports whether the path is the URL of a bucket.
func InBucket(path string) (scheme string, ok bool) {
	scheme, _, ok = strings.Cut(path, "://")
	return scheme, ok && (scheme == "s3" || scheme == "gs" || scheme == "az")
}

// bucket prices an epoch.
func (r *resolved) bucket(p *Plan) {
	scheme, ok := InBucket(r.dataset.Path)
	if !ok || r.dataset.Records == 0 {
		return
	}
	d, away := &r.dataset, 1-r.Cached
	each := max(1, math.Ceil(d.RecordBytes/rangeBytes))
	b := &BucketCost{
		Requests: int64(math.Ceil(float64(d.Records) * away * each)),
		Bytes:    int64(float64(d.Bytes) * away),
	}
	if d.Layout == LayoutPack && d.Bytes > 0 {
		b.RequestsWindow = int64(math.Ceil(float64(d.Bytes) * away / float64(max(d.ChunkBytes, rangeBytes))))
	}
	b.PerMillion, b.Source = r.GetPrice, OriginGiven
	for _, known := range GetPrices() {
		if b.PerMillion == 0 && known.Scheme == scheme {
			b.PerMillion, b.Source = known.PerMillion, known.Source
		}
	}
	if b.PerMillion == 0 {
		b.Source = ""
	}
	b.Price = float64(b.Requests) * b.PerMillion / 1e6
	b.PriceWindow = float64(b.RequestsWindow) * b.PerMillion / 1e6
	if s := r.machine.Store; s != nil && s.Class == ClassObject {
		if rate := storeRate(&Pipeline{Layout: LayoutPack, RecordBytes: d.RecordBytes}, s, d.RecordBytes); rate > 0 {
			b.Seconds = float64(d.Records) * away / rate
		}
		if rate := RateAt(s.Random, rangeBytes, budget.MaxReaders); rate > 0 && b.RequestsWindow > 0 {
			b.SecondsWindow = float64(b.Bytes) / (rate * rangeBytes)
		}
	}
	p.Bucket = b
	if b.PerMillion > 0 {
		origin := OriginPublished
		if r.GetPrice > 0 {
			origin = OriginGiven
		}
		r.input("price_per_million_gets", "price of a million GETs", b.PerMillion, dollars(b.PerMillion), origin, b.Source)
	}
}

// Text describes the cost on one line, and returns a note about it.
func (b *BucketCost) Text() (text, note string) {
	text = fmt.Sprintf("%s GETs, %s", units.Count(float64(b.Requests)), units.Bytes(float64(b.Bytes)))
	if b.Seconds > 0 {
		text += ", " + units.Seconds(b.Seconds)
		if b.SecondsWindow > 0 {
			text += " (" + units.Seconds(b.SecondsWindow) + " in windows)"
		}
	}
	switch {
	case b.PerMillion == 0:
		return text, "an epoch; what they cost is not known: --price-per-million-gets"
	case b.RequestsWindow > 0 && b.RequestsWindow < b.Requests:
		note = fmt.Sprintf("; in windows of chunks %s GETs, %s", units.Count(float64(b.RequestsWindow)), dollars(b.PriceWindow))
	}
	return text + ", " + dollars(b.Price), fmt.Sprintf("an epoch, at %s per million%s", dollars(b.PerMillion), note)
}

// dollars formats an amount. A small one gets as many digits as needed.
func dollars(v float64) string {
	switch {
	case v == 0 || v >= 0.01:
		return fmt.Sprintf("$%.2f", v)
	case v >= 1e-4:
		return fmt.Sprintf("$%.5f", v)
	}
	return "less than $0.0001"
}
