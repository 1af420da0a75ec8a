package hostile

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// door is how federator comes to its hub: it changes no answer, counts access reviews,
// and can be far away.
type door struct {
	proxy *Proxy

	mu      sync.Mutex
	user    string        // whose access reviews are looked at; "": none are
	far     time.Duration // that each of them takes more
	now     int           // under way
	most    int           // at once
	reviews int
}

const subjectReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

// openDoor writes the kubeconfig that leads through it.
func (r *rig) openDoor() (*door, error) {
	p, err := Listen(r.hub.RESTConfig(), nil)
	if err != nil {
		return nil, err
	}
	d := &door{proxy: p}
	p.SetAttacks(0, &Attack{Answer: d.review})
	kubeconfig, err := p.Kubeconfig()
	if err != nil {
		return nil, err
	}
	return d, os.WriteFile(filepath.Join(r.dir, "hub.kubeconfig"), kubeconfig, 0o600)
}

// look counts the access reviews about a user from now on, for whom the hub is far away.
func (d *door) look(user string, far time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.user, d.far, d.most, d.reviews = user, far, d.now, 0
}

// seen returns the number of reviews, and how many there were at once.
func (d *door) seen() (reviews, most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reviews, d.most
}

// review counts, and leaves the answer to the hub.
func (d *door) review(_ http.ResponseWriter, r *http.Request, c *Call) bool {
	if c.Path != subjectReviews || r.Method != http.MethodPost {
		return false
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	d.mu.Lock()
	// In protobuf, too, the name is there as it is.
	looked := d.user != "" && bytes.Contains(body, []byte(d.user))
	far := d.far
	if looked {
		d.reviews++
		d.now++
		d.most = max(d.most, d.now)
	}
	d.mu.Unlock()
	if !looked {
		return false
	}
	if far > 0 {
		late := time.NewTimer(far)
		defer late.Stop()
		select {
		case <-late.C:
		case <-r.Context().Done():
		}
	}
	d.mu.Lock()
	d.now--
	d.mu.Unlock()
	return false
}
