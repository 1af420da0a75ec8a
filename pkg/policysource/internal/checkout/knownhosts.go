package checkout

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the format's
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

// parseKnownHosts reads a file's data. x/crypto's knownhosts package reads files
// only.
func parseKnownHosts(data []byte) (knownHosts, error) {
	var out knownHosts
	for line := 1; ; line++ {
		marker, hosts, key, _, rest, err := ssh.ParseKnownHosts(data)
		switch {
		case errors.Is(err, io.EOF):
			if len(out) == 0 {
				return nil, fail(ErrRequest, "known hosts have no entry")
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

// names returns how known_hosts names an address: the host, or [host]:port where
// the port is not SSH's.
func names(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "22" {
		return strings.ToLower(host)
	}
	return strings.ToLower("[" + host + "]:" + port)
}

// matches says whether an entry is about a host.
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

// check is an ssh.HostKeyCallback. The address dialed is not looked at: the name is
// what is known.
func (k knownHosts) check(address string, _ net.Addr, key ssh.PublicKey) error {
	name, raw := names(address), key.Marshal()
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
		return fail(ErrHostKey, "%s has another key than is known: %s", address, ssh.FingerprintSHA256(key))
	}
	return fail(ErrHostKey, "known hosts have no key of %s", address)
}

// algorithms returns those by which a host can show a key that is known, so that
// it does not show another.
func (k knownHosts) algorithms(address string) []string {
	var out []string
	for _, e := range k {
		if e.revoked || !e.matches(names(address)) {
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
