package clusterinformers

import (
	"errors"
	"fmt"
	"io"
)

// chargeResponse charges the member for bytes of responses that are under way or, below 0,
// gives them back.
func (p *listWatch) chargeResponse(bytes int64) error {
	i := p.informer
	if !i.member.quota.Charge(&i.usage, 0, bytes) {
		return fmt.Errorf("reading a response: %w", errOverBudget)
	}
	return nil
}

// initialPageBytes is the first buffer of a page, which is not charged.
const initialPageBytes = 64 << 10

// readPage reads a response of at most so many bytes; for a large one the member is
// charged while it comes. It returns one byte more of a response that is larger. What it has
// charged is the caller's to give back, with an error, too.
func (p *listWatch) readPage(body io.Reader, limit int64) (page []byte, charged int64, err error) {
	charge := func(bytes int64) error {
		if err := p.chargeResponse(bytes - charged); err != nil {
			return err
		}
		charged = bytes
		return nil
	}
	page = make([]byte, 0, initialPageBytes)
	for {
		if len(page) == cap(page) {
			if int64(len(page)) > limit {
				return page, charged, nil
			}
			size := min(2*int64(cap(page)), limit+1)
			if err := charge(size + int64(cap(page))); err != nil {
				return nil, charged, err
			}
			next := make([]byte, len(page), size)
			copy(next, page)
			page = next
			if err := charge(size); err != nil {
				return nil, charged, err
			}
		}
		n, err := body.Read(page[len(page):cap(page)])
		page = page[:len(page)+n]
		switch {
		case errors.Is(err, io.EOF):
			return page, charged, nil
		case err != nil:
			return nil, charged, err
		}
	}
}
