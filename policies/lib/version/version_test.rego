package federator.lib.version_test

import data.federator.lib.version

test_minor if {
	every text in ["v1.34.1", "1.34", "v1.34+", "v1.34.1-gke.1234", "v1.34.2+k3s1", "v1.34.0-alpha.1"] {
		version.minor(text) == 34
	}
	version.minor("v1.9.11") == 9
}

test_not_known if {
	every x in ["", "v2.0.0", "v1", "v1.x", "unknown", "v1.3400", " v1.34", null, 1, true, [], {}] {
		not version.minor(x)
	}
}
