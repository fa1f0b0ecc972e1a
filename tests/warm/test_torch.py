"""The library that all this is for: PyTorch (Debian's) in a process that waited behaves as in one that did not."""
import os
import re
import socket
import unittest

import warm_lab
from warm_lab import ENVIRONMENT


class Torch(warm_lab.WarmCase):
    def test_what_is_imported(self):
        self.write("script.py", """
            import os, torch
            import torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel
            import numpy as np
            """)
        waiting = self.standby("script.py")
        self.assertRegex(waiting.line(), r"^ready torch,torch\.distributed,torch\.nn\.parallel,numpy \d+$")

    def test_state(self):
        self.same_script("""
            import os, sys
            import numpy
            import torch
            torch.manual_seed(1)
            print(torch.rand(2), torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_dtype())
            print(torch.cuda.is_initialized(), torch.is_grad_enabled(), torch.backends.mkldnn.enabled)
            numpy.random.seed(1)
            print(numpy.random.rand(2), numpy.random.default_rng(3).random())
            print(len(os.listdir('/proc/self/task')), sorted(os.listdir('/proc/self/fd')), os.environ)
            print(torch.utils.data, torch.__file__)
            """)

    def test_random(self):
        self.write("script.py", "import torch, numpy; print(torch.rand(1), numpy.random.rand(), numpy.random.default_rng().random())")
        self.assertNotEqual(self.warm(["script.py"]), self.warm(["script.py"]))

    def test_training(self):
        self.assertIn("loss", self.same_script("""
            import torch
            from torch.utils.data import DataLoader, Dataset

            class Numbers(Dataset):
                def __len__(self): return 32
                def __getitem__(self, i): return torch.tensor([float(i)]), torch.tensor([2.0 * i])

            if __name__ == '__main__':
                torch.manual_seed(1)
                model = torch.nn.Linear(1, 1)
                optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
                for x, y in DataLoader(Numbers(), batch_size=8, num_workers=2):
                    optimizer.zero_grad()
                    loss = torch.nn.functional.mse_loss(model(x), y)
                    loss.backward()
                    optimizer.step()
                    print('loss %.6f' % loss)
                torch.save(model, 'model.pt')
                print(torch.load('model.pt').state_dict())
            """).stdout)

    def test_exception_in_a_model(self):
        found = self.same_script("""
            import torch
            torch.nn.Linear(2, 2)(torch.ones(3))
            """)
        self.assertIn("RuntimeError", found.stderr)

    def test_two_ranks(self):
        """Each waited with the environment of the attempt before, whose rank and port were others."""
        self.write("script.py", """
            import torch
            import torch.distributed as dist
            dist.init_process_group('gloo')
            x = torch.ones(1) * (dist.get_rank() + 1)
            dist.all_reduce(x)
            print(dist.get_rank(), dist.get_world_size(), x, flush=True)
            dist.destroy_process_group()
            """)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        before = dict(ENVIRONMENT, RANK="9", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
        waiting = [self.standby("script.py", environment=before) for _ in range(2)]
        files = []
        for rank, each in enumerate(waiting):
            self.assertRegex(each.line(), "^ready ")
            place = os.path.join(self.directory, "rank%d" % rank)
            os.mkdir(place)
            files.append(warm_lab.outputs(place))
        for rank, each in enumerate(waiting):
            environment = dict(ENVIRONMENT, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            out, err = files[rank]
            self.assertEqual(each.order(["script.py"], environment, stdout=out.fileno(), stderr=err.fileno()), "go")
        for rank, each in enumerate(waiting):
            with files[rank][0] as out, files[rank][1] as err:
                found = self.outcome(each.process, out, err, None)
            self.assertEqual((re.sub(r"\s+", " ", found.stdout), found.status), ("%d 2 tensor([3.]) " % rank, 0), found.stderr)


if __name__ == "__main__":
    unittest.main()
