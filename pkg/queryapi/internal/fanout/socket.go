package fanout

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/resources"
)

// withoutSocket returns a request for a WebSocket as one for the same watch in a response. Its connection is the client's.
func withoutSocket(r *http.Request) *http.Request {
	r = r.Clone(r.Context())
	for name := range r.Header {
		if name == "Connection" || name == "Upgrade" || strings.HasPrefix(name, "Sec-Websocket-") {
			r.Header.Del(name)
		}
	}
	return r
}

// forwardSocket is Forward for a watch over a WebSocket: the peer answers as it answers every watch, and each of its events
// is a message here.
func (h *Handler) forwardSocket(w http.ResponseWriter, r *http.Request, peer *Peer, u user.Info) error {
	if err := resources.CheckOrigin(r, u); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	asked := withoutSocket(r)
	asked.Header["Accept"] = withoutProtobuf(asked.Header["Accept"])
	client := *peer.Client
	client.Transport = patient{client.Transport, h.health, peer}
	resp, err := h.options.toPeer(ctx, &Peer{ID: peer.ID, Epoch: peer.Epoch, URL: peer.URL, Client: &client}, asked, r.URL, nil, u, nil)
	if err != nil {
		if r.Context().Err() != nil {
			return r.Context().Err()
		}
		return &LostError{peer.ID, err}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refusedBy(resp)
	}
	for _, text := range resp.Header["Warning"] {
		w.Header().Add("Warning", text)
	}
	return resources.OverWebSocket(ctx, w, r, h.options.WriteTimeout, func(ctx context.Context, messages http.ResponseWriter) error {
		defer context.AfterFunc(ctx, cancel)() // which ends the reading of the response
		return copyLines(messages, resp.Body, part.MaxFrame)
	})
}

// withoutProtobuf leaves out what messages cannot have.
func withoutProtobuf(accept []string) (out []string) {
	for _, clause := range strings.Split(strings.Join(accept, ","), ",") {
		if !strings.Contains(clause, "protobuf") {
			out = append(out, clause)
		}
	}
	if out == nil {
		return accept // which is refused
	}
	return []string{strings.Join(out, ",")}
}

// refusedBy returns the error that a peer answers.
func refusedBy(resp *http.Response) error {
	if resp.StatusCode == http.StatusUnauthorized {
		return unavailable("the process that judges the member does not know this process")
	}
	status, err := statusOf(resp)
	if err != nil {
		return unavailable("the process that judges the member does not answer")
	}
	return status
}

var errLongLine = errors.New("fanout: a process has sent a line that is too long")

// copyLines copies whole lines of some bytes at most, those that have arrived together. A stream that ends within one was cut off.
func copyLines(to io.Writer, from io.Reader, most int) error {
	in := bufio.NewReaderSize(from, flushAt)
	var lines []byte
	for {
		text, err := in.ReadSlice('\n')
		lines = append(lines, text...)
		if errors.Is(err, bufio.ErrBufferFull) {
			if len(lines)-bytes.LastIndexByte(lines, '\n') > most {
				return errLongLine
			}
			continue
		}
		if whole := bytes.LastIndexByte(lines, '\n') + 1; whole > 0 && (err != nil || in.Buffered() == 0 || len(lines) >= flushAt) {
			if _, err := to.Write(lines[:whole]); err != nil {
				return fmt.Errorf("fanout: %w", err)
			}
			lines = append(lines[:0], lines[whole:]...)
		}
		if err != nil {
			return nil // the watch has ended; its connection is closed
		}
	}
}
