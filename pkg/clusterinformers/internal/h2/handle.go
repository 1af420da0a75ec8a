package h2

import (
	"encoding/binary"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
)

// handle acts on a frame that is not DATA. Its error is what ends the connection, or a
// http2.StreamError.
func (c *conn) handle(f http2.Frame) error {
	var v *ProtocolError
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		return c.handleHeaders(f)
	case *http2.SettingsFrame:
		v = c.handleSettings(f)
	case *http2.PingFrame:
		v = c.handlePing(f)
	case *http2.WindowUpdateFrame:
		return c.handleWindowUpdate(f)
	case *http2.RSTStreamFrame:
		v = c.handleReset(f)
	case *http2.GoAwayFrame:
		v = c.handleGoAway(f)
	case *http2.PushPromiseFrame:
		v = violation(http2.ErrCodeProtocol, "a push, which is not enabled")
	default:
		v = c.useless()
	}
	if v != nil {
		return v
	}
	return nil
}

func (c *conn) handleSettings(f *http2.SettingsFrame) *ProtocolError {
	if v := c.useless(); v != nil || f.IsAck() {
		return v
	}
	if f.NumSettings() > maxSettings {
		return violation(http2.ErrCodeEnhanceYourCalm, "more than %d settings at once", maxSettings)
	}
	c.mu.Lock()
	defer c.freed() // there may be more streams
	defer c.mu.Unlock()
	if !c.settled {
		c.settled, c.maxStreams = true, maxStreams // unless it says so
	}
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingMaxConcurrentStreams:
			c.maxStreams = int(min(s.Val, maxStreams))
		case http2.SettingMaxHeaderListSize:
			c.peerHeaders = s.Val
		case http2.SettingHeaderTableSize:
			c.encoder.SetMaxDynamicTableSize(min(s.Val, maxTableBytes))
		case http2.SettingInitialWindowSize:
			delta := int64(s.Val) - int64(c.initialSend)
			for _, o := range c.streams {
				if int64(o.send)+delta > maxWindow {
					return http2.ConnectionError(http2.ErrCodeFlowControl)
				}
				o.send += int32(delta)
				o.signalLocked()
			}
			c.initialSend = int32(s.Val)
		}
		return nil
	})
	var code http2.ConnectionError
	if errors.As(err, &code) {
		return violation(http2.ErrCode(code), "a setting is out of its range")
	}
	c.urgent = appendFrame(c.urgent, http2.FrameSettings, http2.FlagSettingsAck, 0, 0)
	c.flushLocked()
	return nil
}

func (c *conn) handlePing(f *http2.PingFrame) *ProtocolError {
	c.mu.Lock()
	if n := binary.BigEndian.Uint64(f.Data[:]); f.IsAck() && n != 0 && n == c.resetPing {
		for id, ping := range c.resets {
			if ping == n {
				delete(c.resets, id)
				c.reset = append(c.reset[max(0, len(c.reset)+1-maxReset):], id)
			}
		}
		c.pingResetsLocked()
		c.mu.Unlock()
		c.freed()
		return nil
	}
	if !f.IsAck() {
		c.urgent = appendPing(c.urgent, http2.FlagPingAck, f.Data)
		c.flushLocked()
	}
	c.mu.Unlock()
	return c.useless()
}

func (c *conn) handleWindowUpdate(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.updates--; c.updates < 0 {
		c.updates = 0
		if v := c.useless(); v != nil {
			return v
		}
	}
	if f.StreamID == 0 {
		if c.send += int64(f.Increment); c.send > maxWindow {
			return violation(http2.ErrCodeFlowControl, "the connection's window is too large")
		}
		for _, s := range c.blocked {
			s.signalLocked()
		}
		return nil
	}
	s := c.streams[f.StreamID]
	if s == nil {
		if !c.openedLocked(f.StreamID) {
			return errNotOpened
		}
		return nil // it may be on its way when the stream ends
	}
	if int64(s.send)+int64(f.Increment) > maxWindow {
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
	}
	s.send += int32(f.Increment)
	s.signalLocked()
	return nil
}

func (c *conn) handleReset(f *http2.RSTStreamFrame) *ProtocolError {
	c.mu.Lock()
	s := c.streams[f.StreamID]
	if s == nil {
		defer c.mu.Unlock()
		if !c.openedLocked(f.StreamID) {
			return errNotOpened
		}
		return c.useless() // it may be on its way when the stream ends
	}
	var err error = &ResetError{f.ErrCode}
	if f.ErrCode == http2.ErrCodeRefusedStream && s.pending != nil && s.pending.early == 0 {
		err = &unprocessedError{err}
	}
	c.mu.Unlock()
	if ours(f.ErrCode) { // counted before anybody reads of it
		_ = c.violated(violation(f.ErrCode, "the server reset a stream")) //nolint:errcheck // of the stream, not of the connection
	}
	c.mu.Lock()
	after := s.endLocked(err, noCode)
	c.mu.Unlock()
	after.run()
	return nil
}

func (c *conn) handleGoAway(f *http2.GoAwayFrame) *ProtocolError {
	if v := c.useless(); v != nil {
		return v
	}
	if ours(f.ErrCode) {
		_ = c.violated(violation(f.ErrCode, "the server shut the connection down")) //nolint:errcheck // the server ends it
	}
	var after later
	c.mu.Lock()
	c.gone = true
	for id, s := range c.streams {
		if id > f.LastStreamID {
			after = append(after, s.endLocked(&unprocessedError{errGoneAway}, noCode)...)
		}
	}
	c.mu.Unlock()
	if oldest := c.t.drain(c); oldest != nil {
		oldest.fail(errDrainedAway)
	}
	after.run()
	c.freed()
	return nil
}

func (c *conn) handleHeaders(f *http2.MetaHeadersFrame) error {
	malformed := http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
	c.mu.Lock()
	s := c.streams[f.StreamID]
	if s == nil {
		defer c.mu.Unlock()
		if v := c.strayLocked(f.StreamID); v != nil {
			return v
		}
		if v := c.useless(); v != nil {
			return v
		}
		return nil
	}
	p := s.pending
	if f.Truncated {
		after := s.endLocked(errHeaderList, http2.ErrCodeCancel)
		c.mu.Unlock()
		after.run()
		return nil
	}
	if p == nil { // trailers: nobody reads them
		if !f.StreamEnded() || len(f.PseudoFields()) > 0 {
			c.mu.Unlock()
			return malformed
		}
		after := s.remoteEndLocked()
		c.mu.Unlock()
		after.run()
		return nil
	}
	status, err := strconv.ParseUint(f.PseudoValue("status"), 10, 16)
	switch {
	case err != nil || status < 100 || status > 999 || len(f.PseudoFields()) != 1:
		c.mu.Unlock()
		return malformed
	case status < 200:
		defer c.mu.Unlock()
		if p.early++; p.early > maxEarly {
			return violation(http2.ErrCodeEnhanceYourCalm, "more than %d responses that are not the last", maxEarly)
		}
		if f.StreamEnded() || status == http.StatusSwitchingProtocols {
			return malformed
		}
		return nil
	}
	after, err := s.respondLocked(f, int(status))
	c.mu.Unlock()
	after.run()
	return err
}

// respondLocked makes the response of its headers.
func (s *clientStream) respondLocked(f *http2.MetaHeadersFrame, status int) (later, error) {
	p := s.pending
	resp := &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status,
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: http.Header{}, ContentLength: -1, Body: s,
	}
	for _, field := range f.RegularFields() {
		resp.Header.Add(field.Name, field.Value)
	}
	for _, e := range resp.Header["Content-Encoding"] {
		if e != "" && !strings.EqualFold(e, "identity") && !p.encoding {
			return s.endLocked(&EncodingError{}, http2.ErrCodeCancel), nil
		}
	}
	if lengths := resp.Header.Values("Content-Length"); len(lengths) > 0 {
		n, err := strconv.ParseUint(lengths[0], 10, 63)
		if err != nil || len(lengths) > 1 {
			return nil, http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol}
		}
		resp.ContentLength = int64(n)
	}
	p.resp, s.pending = resp, nil
	if !p.head && status != http.StatusNotModified {
		s.left = resp.ContentLength
	}
	if f.StreamEnded() {
		if s.left < 0 && !p.head && status != http.StatusNotModified {
			resp.ContentLength = 0
		}
		return s.remoteEndLocked(), nil
	}
	s.signalLocked()
	return nil, nil
}
