from hive.hosts.files import HostFacts as HostFacts
from hive.hosts.files import host_facts as host_facts
from hive.hosts.files import resumed_elsewhere as resumed_elsewhere
from hive.hosts.part import part_of as part_of
from hive.hosts.placement import connect_hosts as connect_hosts
