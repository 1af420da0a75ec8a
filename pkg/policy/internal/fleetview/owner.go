package fleetview

import "github.com/cespare/xxhash/v2"

// KeyOwner says which keys of views this process judges, where several share a fleet. The zero KeyOwner has all.
type KeyOwner struct {
	Self string // the ID of this process
	// Now are the IDs of the processes that share the keys, and Before those that did until all have what the
	// others export; nil for none. While both are there, a key may have two owners, and is never without one.
	Now, Before []string
}

// Owns reports whether this process judges a key as a subject of a binding. All versions of a policy have the
// binding's name, and are judged by one process: they are compared.
func (o *KeyOwner) Owns(binding, key string) bool {
	if o.Self == "" && len(o.Now)+len(o.Before) == 0 {
		return true
	}
	return ownerOf(o.Now, binding, key) == o.Self || len(o.Before) > 0 && ownerOf(o.Before, binding, key) == o.Self
}

// Owner returns the ID of the process that judges a key as a subject of a binding; "" is this one, which has all.
func (o *KeyOwner) Owner(binding, key string) string {
	if len(o.Now) > 0 {
		return ownerOf(o.Now, binding, key)
	}
	return ownerOf(o.Before, binding, key)
}

// ownerOf returns the owner of a key by rendezvous hashing: one that comes or goes moves none but its own keys.
func ownerOf(processes []string, binding, key string) (owner string) {
	var best uint64
	var d xxhash.Digest
	for _, id := range processes {
		d.Reset()
		for _, s := range []string{id, binding, key} {
			_, _ = d.WriteString(s) // neither returns an error
			_, _ = d.Write([]byte{0})
		}
		if h := d.Sum64(); owner == "" || h > best || h == best && id < owner {
			owner, best = id, h
		}
	}
	return owner
}
