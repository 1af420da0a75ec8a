package checkout

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1" // required by the format
	"encoding/base64"
	"errors"
	"io"
	"net"
	"path"
	"strings"

	"golang.org/x/crypto/ssh"
)

// knownHosts are the entries of a known_hosts file (sshd(8)). Certificate
// authorities are not supported.
type knownHosts []knownHost

type knownHost struct {
	patterns []string
	key      ssh.PublicKey
	revoked  bool
}

// parseKnownHosts parses a file's content; x/crypto's knownhosts package only reads files.
func parseKnownHosts(data []byte) (knownHosts, error) {
	var out knownHosts
	for line := 1; ; line++ {
		marker, hosts, key, _, rest, err := ssh.ParseKnownHosts(data)
		switch {
		case errors.Is(err, io.EOF):
			if len(out) == 0 {
				return nil, fail(ErrRequest, "known hosts contain no entry")
			}
			return out, nil
		case err != nil:
			return nil, fail(ErrRequest, "known hosts, entry %d: %v", line, err)
		case marker != "" && marker != "revoked":
			return nil, fail(ErrRequest, "known hosts, entry %d: @%s is not supported", line, shorten(marker))
		}
		out = append(out, knownHost{hosts, key, marker == "revoked"})
		data = rest
	}
}

// hostPattern returns an address as in known_hosts: the host, or [host]:port if the port
// is not 22.
func hostPattern(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "22" {
		return strings.ToLower(host)
	}
	return strings.ToLower("[" + host + "]:" + port)
}

// matches reports whether an entry is for a host.
func (k knownHost) matches(name string) bool {
	found := false
	for _, p := range k.patterns {
		switch {
		case strings.HasPrefix(p, "|1|"):
			found = found || hashed(p, name)
		case strings.HasPrefix(p, "!"):
			if wild(p[1:], name) {
				return false
			}
		default:
			found = found || wild(p, name)
		}
	}
	return found
}

// hashed matches ssh-keygen -H's form: |1|salt|HMAC-SHA1(salt, name).
func hashed(pattern, name string) bool {
	parts := strings.Split(pattern, "|")
	if len(parts) != 4 {
		return false
	}
	salt, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil {
		return false
	}
	want, err := base64.StdEncoding.DecodeString(parts[3])
	if err != nil {
		return false
	}
	mac := hmac.New(sha1.New, salt)
	mac.Write([]byte(name))
	return hmac.Equal(mac.Sum(nil), want)
}

// wild matches * and ?.
func wild(pattern, name string) bool {
	// Brackets are literal: they are those of [host]:port.
	escaped := strings.NewReplacer(`[`, `\[`, `]`, `\]`, `\`, `\\`).Replace(strings.ToLower(pattern))
	ok, err := path.Match(escaped, name)
	return err == nil && ok
}

// check is an ssh.HostKeyCallback. Keys are known by host name; the dialed address is
// ignored.
func (k knownHosts) check(address string, _ net.Addr, key ssh.PublicKey) error {
	name, raw := hostPattern(address), key.Marshal()
	seen, trusted := false, false
	for _, e := range k {
		same := bytes.Equal(e.key.Marshal(), raw)
		switch {
		case e.revoked && same:
			return fail(ErrHostKey, "the key of %s is revoked", address)
		case e.revoked || !e.matches(name):
		default:
			seen, trusted = true, trusted || same
		}
	}
	switch {
	case trusted:
		return nil
	case seen:
		return fail(ErrHostKey, "%s has a key that differs from the known one: %s", address, ssh.FingerprintSHA256(key))
	}
	return fail(ErrHostKey, "known hosts contain no key of %s", address)
}

// algorithms returns the algorithms of the known keys of a host, so that it does not
// present another key.
func (k knownHosts) algorithms(address string) []string {
	var out []string
	for _, e := range k {
		if e.revoked || !e.matches(hostPattern(address)) {
			continue
		}
		switch t := e.key.Type(); t {
		case ssh.KeyAlgoRSA:
			out = append(out, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		default:
			out = append(out, t)
		}
	}
	return out
}
