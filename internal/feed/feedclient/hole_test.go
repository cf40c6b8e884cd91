package feedclient

import (
	"net/http"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/feed/feedserver"
	"github.com/stokerdata/stoker/internal/serverstest"
)

// In a black hole connections stay open, and nothing arrives. A trainer goes on with another server, or after the hole.
// make test-cluster has the long form, with packets that a router drops for 10 s.
func TestBlackHole(t *testing.T) {
	proxy := serverstest.TCPFaults(t)
	want := batches(t, open(t, config()), 6)
	for name, others := range map[string]int{"alone": 0, "two servers": 1} {
		t.Run(name, func(t *testing.T) {
			addr, _ := serve(t, config(), feedserver.Options{})
			proxies := proxy.URL + "/proxies"
			made := serverstest.Toxic(t, http.MethodPost, proxies, map[string]any{"name": "x", "listen": "127.0.0.1:0", "upstream": addr, "enabled": true})
			defer serverstest.Toxic(t, http.MethodDelete, proxies+"/x", nil)
			servers := made["listen"].(string)
			for range others {
				other, _ := serve(t, config(), feedserver.Options{})
				servers += "," + other
			}
			p, _ := remoteFirst(t, config(), servers, Options{Late: 50 * time.Millisecond, CompareEvery: 4})
			streams := []string{"upstream", "downstream"}
			got := watchedBatches(t, p, 6, func(n int) {
				if n != 8 {
					return
				}
				for _, stream := range streams {
					serverstest.Toxic(t, http.MethodPost, proxies+"/x/toxics", map[string]any{
						"name": stream, "type": "timeout", "stream": stream, "attributes": map[string]any{"timeout": 0}, // it never ends
					})
				}
				if others == 0 {
					time.Sleep(500 * time.Millisecond)
					for _, stream := range streams {
						serverstest.Toxic(t, http.MethodDelete, proxies+"/x/toxics/"+stream, nil)
					}
				}
			})
			same(t, got, want)
			if st := p.Stats().Feeders; st.Batches == 0 || st.Different > 0 {
				t.Errorf("statistics are %+v", st)
			}
		})
	}
}
