package memberclient

import (
	"context"
	"net/http"
	"strings"
)

// etag is by what a server recognises an answer that it gave: a hash of its content.
type etag struct{ url, accept, value string }

const (
	maxETag = 256 // bytes that are remembered

	// An aggregated discovery has two answers, of /api and of /apis, with all resources in them.
	// Whether the others have changed cannot be asked.
	aggregatedAnswers = 2
	aggregatedType    = "as=APIGroupDiscoveryList"
)

// etagOf returns what an aggregated answer is known by, the zero etag of others.
func etagOf(r *http.Request, resp *http.Response) etag {
	value := resp.Header.Get("Etag")
	if resp.StatusCode != http.StatusOK || value == "" || len(value) > maxETag || !strings.Contains(resp.Header.Get("Content-Type"), aggregatedType) {
		return etag{}
	}
	return etag{r.URL.String(), r.Header.Get("Accept"), value}
}

// etags returns what all answers of the discovery are known by, nil where they are not.
func (f *discoveryTransport) etags() *[]etag {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.answers) != aggregatedAnswers {
		return nil
	}
	out := make([]etag, 0, aggregatedAnswers)
	for _, e := range f.answers {
		if e.value == "" {
			return nil
		}
		out = append(out, e)
	}
	return &out
}

// unchanged asks whether the answers of a discovery would be those of the last one. It
// reads none of them.
func (a *Client) unchanged(ctx context.Context) (bool, error) {
	last := a.etags.Load()
	if last == nil {
		return false, nil
	}
	for _, e := range *last {
		if same, err := a.matches(ctx, e); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (a *Client) matches(ctx context.Context, e etag) (bool, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url, http.NoBody)
	if err != nil {
		return false, err
	}
	r.Header.Set("Accept", e.accept)
	r.Header.Set("If-None-Match", e.value)
	resp, err := a.http.Do(r)
	if err != nil {
		return false, err
	}
	// What has changed is read by the discovery that follows, with its limits.
	return resp.StatusCode == http.StatusNotModified, resp.Body.Close()
}
