<?php
// PHP: the phpredis extension with its session handler and its lock, and Predis.
require 'Predis/Autoloader.php';
Predis\Autoloader::register();

$port = (int) getenv('PORT');

function check(string $name, $given, $expected): void {
    if ($given !== $expected) {
        fwrite(STDERR, "$name: " . var_export($given, true) . ' is not ' . var_export($expected, true) . "\n");
        exit(1);
    }
    echo "ok $name\n";
}

// Sessions with the handler's lock, which is a script: two processes count without losing a visit.
ini_set('session.save_handler', 'redis');
ini_set('session.save_path', "tcp://127.0.0.1:$port?prefix=php:");
ini_set('redis.session.locking_enabled', '1');
ini_set('redis.session.lock_retries', '-1');
ini_set('session.use_cookies', '0');
ini_set('session.cache_limiter', '');
if (($argv[1] ?? '') === 'visit') {
    for ($n = 0; $n < 50; $n++) {
        session_id('visitor');
        session_start();
        $_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
        session_write_close();
    }
    exit(0);
}

$redis = new Redis();
$redis->connect('127.0.0.1', $port);
$redis->flushAll();
check('phpredis ping', $redis->ping('hello'), 'hello');
$redis->setOption(Redis::OPT_SERIALIZER, Redis::SERIALIZER_PHP);
$redis->set('object', ['a' => 1, 'b' => [true, null]]);
check('phpredis serializer', $redis->get('object'), ['a' => 1, 'b' => [true, null]]);
$redis->setOption(Redis::OPT_SERIALIZER, Redis::SERIALIZER_NONE);
$pipe = $redis->multi(Redis::PIPELINE);
for ($n = 0; $n < 1000; $n++) {
    $pipe->set("key:$n", $n);
}
check('phpredis pipeline', count($pipe->exec()), 1000);
$redis->setOption(Redis::OPT_SCAN, Redis::SCAN_RETRY);
$seen = [];
for ($cursor = null; $keys = $redis->scan($cursor, 'key:*', 50);) {
    foreach ($keys as $key) {
        $seen[$key] = true;
    }
}
check('phpredis scan', count($seen), 1000);
check('phpredis transaction', $redis->multi()->incr('n')->hSet('h', 'f', 'v')->hGetAll('h')->exec(), [1, 1, ['f' => 'v']]);
check('phpredis script', $redis->eval('return {KEYS[1], redis.call("INCR", "n"), ARGV[1]}', ['k', 'x'], 1), ['k', 2, 'x']);
check('phpredis sorted set', $redis->zAdd('z', 1, 'a', 2.5, 'b') . json_encode($redis->zRange('z', 0, -1, true)), '2{"a":1,"b":2.5}');
$redis->xGroup('CREATE', 'stream', 'group', '0', true);
$id = $redis->xAdd('stream', '*', ['k' => 'v']);
check('phpredis stream', $redis->xReadGroup('group', 'me', ['stream' => '>'], 10), ['stream' => [$id => ['k' => 'v']]]);
check('phpredis acknowledge', $redis->xAck('stream', 'group', [$id]), 1);
check('phpredis geo', round($redis->rawCommand('GEOADD', 'geo', '13.361389', '38.115556', 'a') + 0), 1.0);
check('phpredis error', [$redis->lPush('h', 'x'), str_starts_with($redis->getLastError(), 'WRONGTYPE')], [false, true]);

$predis = new Predis\Client(['port' => $port]);
$predis->flushall();
$replies = $predis->pipeline(function ($pipe) {
    for ($n = 0; $n < 500; $n++) {
        $pipe->incr('n');
    }
});
check('Predis pipeline', end($replies), 500);
$replies = $predis->transaction(['cas' => true, 'watch' => 'n', 'retry' => 3], function ($tx) {
    $value = $tx->get('n');
    $tx->multi();
    $tx->set('n', $value * 2);
    $tx->get('n');
});
check('Predis check and set', end($replies), '1000');
check('Predis script', $predis->eval('return redis.call("LPUSH", KEYS[1], unpack(ARGV))', 1, 'list', 'a', 'b', 'c'), 3);
check('Predis scan', count(iterator_to_array(new Predis\Collection\Iterator\ListKey($predis, 'list'))), 3);
$worker = fn () => proc_open([PHP_BINARY, __FILE__, 'visit'], [], $pipes);
$workers = [$worker(), $worker(), $worker()];
foreach ($workers as $each) {
    check('phpredis session process', proc_close($each), 0);
}
session_id('visitor');
session_start();
check('phpredis session lock', $_SESSION['visits'], 150);
session_destroy();
check('phpredis session is destroyed', $predis->exists('php:visitor'), 0);
$predis->flushall();
