package config

import "testing"

// TestShards_TheProcessNamesItself: by its Pod, unless the configuration does, and only where several share a fleet.
func TestShards_TheProcessNamesItself(t *testing.T) {
	t.Setenv("POD_NAME", "federator-1")
	t.Setenv("POD_IP", "2001:db8::7")
	for _, c := range []struct {
		given         Shards
		name, address string
	}{
		{Shards{Count: 1, Replication: 1}, "", ""},
		{Shards{Count: 3, Replication: 2, Listen: ":9444"}, "federator-1", "[2001:db8::7]:9444"},
		{Shards{Count: 3, Replication: 2, Listen: ":9444", Name: "west", Address: "west.example:1"}, "west", "west.example:1"},
	} {
		config := Default()
		config.Sources.ClusterAPI = &ClusterAPI{}
		config.Shards = c.given
		if err := config.validate(nil); err != nil {
			t.Errorf("%+v: %v", c.given, err)
		}
		if s := config.Shards; s.Name != c.name || s.Address != c.address {
			t.Errorf("%+v: %q at %q, want %q at %q", c.given, s.Name, s.Address, c.name, c.address)
		}
	}
}
